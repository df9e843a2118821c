/**
 * The results of one program: printed as they arrive, kept in a dated file, with the checks in a summary at
 * the end.
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { appendFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, release } from "node:os";
import { join } from "node:path";
import { listCudaDevices } from "holdfast";
import { repositoryRoot } from "../../test/support/repository.js";
import { type CommonOptions, cudaEnvironment } from "./options.js";

/** The prefix of a summary line; `all` collects the lines of every program by it. */
export const summaryLabels = {
  held: "ok     ",
  failed: "FAILED ",
  met: "met    ",
  missed: "MISSED ",
} as const;

export class Results {
  readonly #path: string;
  readonly #summary: string[] = [];
  #hasFailed = false;

  constructor(program: string, options: CommonOptions) {
    const machine = describeMachine();
    const [date] = new Date().toISOString().split("T");
    mkdirSync(options.out, { recursive: true });
    this.#path = join(options.out, `${date}-gpu-${program}-${machine.slug}.txt`);
    writeFileSync(this.#path, "");
    for (const line of machine.lines) this.line(line);
    this.line(`command: node ${commandWords().join(" ")}`);
    this.line();
  }

  /** Prints a line and writes it at once: whatever ends the program, the lines so far are kept. */
  line(text = ""): void {
    console.log(text);
    appendFileSync(this.#path, `${text}\n`);
  }

  /** Columns: the first is text, the others are numbers or marks. */
  table(rows: readonly (readonly string[])[]): void {
    const columns = Math.max(...rows.map(({ length }) => length));
    const widths = Array.from({ length: columns }, (_, column) =>
      Math.max(...rows.map((row) => row[column]?.length ?? 0)),
    );
    for (const row of rows) {
      const cells = row.map((cell, column) =>
        column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!),
      );
      this.line(`  ${cells.join("  ")}`.trimEnd());
    }
    this.line();
  }

  /** Reports whether a required condition holds; if not, the program ends with exit code 1. */
  require(holds: boolean, claim: string): void {
    if (!holds) this.#hasFailed = true;
    this.#summary.push((holds ? summaryLabels.held : summaryLabels.failed) + claim);
  }

  /** Reports whether a figure reaches its target. */
  aim(isReached: boolean, claim: string): void {
    this.#summary.push((isReached ? summaryLabels.met : summaryLabels.missed) + claim);
  }

  /** Runs a section of the program; an exception is reported, and the program continues. */
  async attempt(name: string, section: () => void | Promise<void>): Promise<void> {
    try {
      await section();
    } catch (error) {
      this.line(`${name}: ${errorText(error)}`);
      this.require(false, `${name}: ${firstLine(error)}`);
    }
  }

  /** Prints the summary at the end. */
  finish(): void {
    this.line();
    for (const line of this.#summary) this.line(line);
    console.log(`→ ${this.#path}`);
    if (this.#hasFailed) process.exitCode = 1;
  }
}

/** The message, and the first lines of the stack. */
function errorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const frames = error.stack?.match(/^\s+at .*$/gm) ?? [];
  return [error.message, ...frames.slice(0, 4)].join("\n");
}

function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split("\n")[0]!.slice(0, 200);
}

interface Machine {
  readonly slug: string;
  readonly lines: readonly string[];
}

function describeMachine(): Machine {
  const [cpu] = cpus();
  const host = `${new Date().toISOString()}, node ${process.version}, ${process.platform} ${process.arch}, kernel ${release()}, ${cpus().length} × ${cpu?.model ?? "CPU"}`;
  const source = [`code: ${hashOfCode()} (sha256 of dist/src, its first 12 digits)`];
  try {
    const [gpu] = listCudaDevices(cudaEnvironment);
    if (!gpu) return { slug: "none", lines: [host, "no GPU", ...source] };
    const { name, computeCapability, multiprocessors, totalBytes, driverVersion } = gpu;
    const cuda = `${Math.floor(driverVersion / 1000)}.${(driverVersion % 1000) / 10}`;
    const version = ask("nvidia-smi", ["--query-gpu=driver_version", "--format=csv,noheader"]);
    const memory = `${(totalBytes / 2 ** 30).toFixed(0)} GiB`;
    const driver = version ? `driver ${version} (CUDA ${cuda})` : `CUDA ${cuda}`;
    return {
      slug: name.toLowerCase().replace(/nvidia|[^a-z0-9]+/g, "") || "gpu",
      lines: [
        host,
        `${name}, sm ${computeCapability}, ${multiprocessors} multiprocessors, ${memory}, ${driver}`,
        ...source,
      ],
    };
  } catch (error) {
    return { slug: "none", lines: [host, `no GPU: ${firstLine(error)}`, ...source] };
  }
}

/** The command, without the folders of this machine, which say nothing about the figures. */
function commandWords(): readonly string[] {
  const folders: ReadonlySet<string> = new Set(["--out", "--cache", "--peer", "--checker", "--raw"]);
  const words = process.argv.slice(1).map((word) => word.replace(`${repositoryRoot}/`, ""));
  return words.filter((word, index) => !folders.has(word) && !folders.has(words[index - 1] ?? ""));
}

/** Identifies the measured code by its bytes: a copy on a GPU host is not a git checkout. */
function hashOfCode(): string {
  const folder = join(repositoryRoot, "dist/src");
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
    /\.js$/.test(name),
  );
  const hash = createHash("sha256");
  for (const name of files.filter((file) => !file.endsWith(".test.js")).sort()) {
    hash.update(`${name}\n`).update(readFileSync(join(folder, name)));
  }
  return hash.digest("hex").slice(0, 12);
}

/** The output of a program in one line, or "" if the program is not installed. */
function ask(program: string, args: readonly string[]): string {
  try {
    const text = execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    return text.trim().split("\n")[0] ?? "";
  } catch {
    return "";
  }
}

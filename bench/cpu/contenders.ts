/** The programs that `npm run bench:cpu` compares: how each is started, and what to do if it is not installed. */

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { repositoryRoot } from "../../test/support/repository.js";
import type { Report } from "./report.js";

export interface Entry {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  readonly environment?: Readonly<Record<string, string>>;
  /** The exit code of a contender's process that lacks a library. */
  readonly whereToGetIt: string;
}

export type Outcome = { readonly name: string } & (
  | { readonly report: Report }
  | { readonly absence: string }
);

const limitMs = 10 * 60_000;
const compiled = (file: string): string => join(repositoryRoot, "dist/bench/cpu", file);
const peer = (file: string): string => join(repositoryRoot, "bench/cpu/peers", file);

const openBlas = "libopenblas.so.0";
const aptInstall = (name: string): string => `not installed; install Debian's package ${name}`;
const npmInstall = "not installed; run npm run bench:cpu -- --install";

export const entries: readonly Entry[] = [
  {
    name: "holdfast",
    command: [process.execPath, "--conditions=holdfast-source", compiled("holdfast.js")],
    whereToGetIt: "not built",
  },
  {
    name: "holdfast-blas",
    command: [process.execPath, "--conditions=holdfast-source", compiled("holdfast.js")],
    environment: { HOLDFAST_BLAS: openBlas },
    whereToGetIt: aptInstall("libopenblas0"),
  },
  {
    name: "holdfast-compiled",
    command: [process.execPath, "--conditions=holdfast-source", compiled("holdfast.js"), "--compiled"],
    whereToGetIt: "not built",
  },
  {
    name: "holdfast-compiled-blas",
    command: [process.execPath, "--conditions=holdfast-source", compiled("holdfast.js"), "--compiled"],
    environment: { HOLDFAST_BLAS: openBlas },
    whereToGetIt: aptInstall("libopenblas0"),
  },
  {
    name: "openblas",
    command: [process.execPath, compiled("openblas.js"), openBlas],
    whereToGetIt: aptInstall("libopenblas0"),
  },
  {
    name: "torch",
    // Debian's Python, because another Python on the path would not see Debian's packages.
    command: [process.env["PYTHON"] ?? "/usr/bin/python3", peer("torch_step.py")],
    environment: { PYTHONDONTWRITEBYTECODE: "1" },
    whereToGetIt: aptInstall("python3-torch"),
  },
  { name: "jax-js", command: [process.execPath, peer("jax-js.mjs")], whereToGetIt: npmInstall },
  { name: "tensorflow-js", command: [process.execPath, peer("tensorflow-js.mjs")], whereToGetIt: npmInstall },
];

const missing = /ENOENT|ERR_MODULE_NOT_FOUND|No module named|HOLDFAST_BLAS is .* does not load/;

/** Runs a contender in its own process and reads its report. */
export function runEntry({ name, command, environment = {}, whereToGetIt }: Entry): Outcome {
  const [program, ...args] = command;
  const { HOLDFAST_BLAS: _, ...inherited } = process.env;
  const env = { ...inherited, ...environment };
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    encoding: "utf8",
    env,
    timeout: limitMs,
  });
  const complaint = `${error ?? ""}\n${stderr ?? ""}`;
  if (status !== 0)
    return { name, absence: missing.test(complaint) ? whereToGetIt : `failed: ${complaint.trim()}` };
  const line = stdout.trim().split("\n").at(-1) ?? "";
  return { name, report: JSON.parse(line) as Report };
}

/** Installs the npm peers next to their manifest, without a lock file, which would contain registry addresses. */
export function installPeers(): void {
  const args = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"];
  const { status } = spawnSync("npm", args, { cwd: peer("."), stdio: "inherit" });
  if (status !== 0) throw new Error(`npm install of the peers ended with ${status}.`);
}

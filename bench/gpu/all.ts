/**
 * `npm run bench:gpu`: all measurements and checks on a GPU, one program after the other, each in its own process with a time limit. A program that fails is reported, and the next one runs. The summary comes last.
 *
 *   npm run bench:gpu -- --only eager,soak     these programs, in this order
 *   npm run bench:gpu -- --peer step.py        PyTorch's step for comparison, by a script that prints "ms/step"
 *   npm run bench:gpu -- --only compiled --torch torch.py --jax jax.py    the compiled step and the peers' steps
 *   npm run bench:gpu -- --total 900           seconds for all programs; those without time left are skipped
 *   npm run bench:gpu -- --small --emulator    a trial where there is no GPU
 *
 * A single program takes more options: `node --conditions=holdfast-source dist/bench/gpu/eager.js --batch 64`.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { readOptions } from "../../test/support/command-line.js";
import { repositoryRoot } from "../../test/support/repository.js";
import { type CommonOptions, commonArguments, commonOptions, count } from "./options.js";
import { Results, summaryLabels } from "./results.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  only: {
    type: "string",
    default:
      "gradients,errors,eager,compiled,attention,soak,start,sanitizer,suites,parity,job,job-soak,recorder",
  },
  peer: { type: "string", default: "" },
  torch: { type: "string", default: "" },
  jax: { type: "string", default: "" },
  checker: { type: "string", default: "" },
  total: { type: "string", default: "570" },
  small: { type: "boolean", default: false },
});

interface Program {
  /** The time limit of the program. */
  readonly seconds: number;
  readonly command: readonly string[];
  /** Options that make it take seconds on the emulator. */
  readonly small: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

/**
 * Most of a suite's time on a GPU is compilation: one process for each core, except a few for the rest of the
 * machine.
 */
const atOnce = String(Math.max(2, Math.floor(0.75 * availableParallelism())));

const programArgs = (name: string, ...args: string[]): readonly string[] => [
  "--conditions=holdfast-source",
  join(repositoryRoot, `dist/bench/gpu/${name}.js`),
  ...commonArguments(options),
  ...args,
];
const passOn = (name: "peer" | "checker"): string[] =>
  options[name] === "" ? [] : [`--${name}`, options[name]];
const named = (name: "torch" | "jax"): string[] => (options[name] === "" ? [] : [`--${name}`, options[name]]);
const fewSteps = ["--batch", "2", "--rows", "64"];
const fewSamples = ["--samples", "60", "--batch", "4"];

const programs: Readonly<Record<string, Program>> = {
  gradients: { seconds: 90, command: programArgs("gradients"), small: ["--batch", "2"] },
  errors: {
    seconds: 270,
    command: programArgs("errors", "--seconds", "170"),
    small: ["--only", "matmul,layerNorm", "--draws", "1", "--processes", "1"],
  },
  eager: {
    seconds: 200,
    command: programArgs("eager", ...passOn("peer")),
    small: [...fewSteps, "--groups", "1", "--steps", "2", "--precisions", "tf32"],
  },
  compiled: {
    seconds: 420,
    command: programArgs("compiled", "--kernels", ...named("torch"), ...named("jax")),
    small: [...fewSteps, "--groups", "1", "--steps", "2", "--precisions", "tf32", "--curves", "2"],
  },
  soak: {
    seconds: 180,
    command: programArgs("soak"),
    small: ["--batch", "4", "--rows", "16", "--gpt-batch", "1", "--steps", "40", "--every", "10"],
  },
  parity: { seconds: 240, command: programArgs("parity"), small: [...fewSamples, "--batches", "1"] },
  job: {
    seconds: 420,
    command: programArgs("job"),
    small: ["--samples", "30", "--batch", "10", "--epochs", "1", "--precisions", "f32", "--cut", "none"],
  },
  "job-soak": {
    seconds: 240,
    command: programArgs("job-soak"),
    small: [...fewSamples, "--steps", "4", "--every", "2"],
  },
  recorder: {
    seconds: 120,
    command: programArgs("recorder"),
    small: ["--batch", "4", "--rows", "8", "--epochs", "2", "--rounds", "1", "--steps", "1000"],
  },
  start: { seconds: 150, command: programArgs("start"), small: [...fewSteps, "--cold", "1", "--warm", "1"] },
  attention: { seconds: 150, command: programArgs("attention"), small: ["--small", "--calls", "1"] },
  sanitizer: {
    seconds: 560,
    command: programArgs("sanitizer", ...passOn("checker")),
    small: ["--tools", "memcheck", "--draws", "1", "--seconds", "20"],
  },
  suites: {
    seconds: 540,
    command: [join(repositoryRoot, "scripts/test.mjs"), "--suites", "device", "--at-once", atOnce],
    small: ["numbers-dropout"],
    environment: { TEST_DEVICE: options["emulator"] ? "emulator" : "cuda" },
  },
};

interface Outcome {
  readonly name: string;
  readonly seconds: number;
  /** "0", another exit code, or the reason why there is none. */
  readonly ending: string;
  /** The program's summary lines. */
  readonly summary: readonly string[];
}

/** Runs a program; every line goes to `onLine` as it arrives. */
async function runProgram(name: string, limit: number, onLine: (line: string) => void): Promise<Outcome> {
  const { command, small, environment } = programs[name]!;
  const startedAt = performance.now();
  // A process group, so that the program's children end with it.
  const child = spawn(process.execPath, [...command, ...(options.small ? small : [])], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    env: { ...process.env, ...environment },
  });
  let isOverdue = false;
  const timer = setTimeout(() => {
    isOverdue = true;
    process.kill(-child.pid!, "SIGKILL");
  }, 1000 * limit);
  const summary: string[] = [];
  const read = async (input: NodeJS.ReadableStream): Promise<void> => {
    for await (const line of createInterface({ input })) {
      onLine(line);
      const isSummary = Object.values(summaryLabels).some((start) => line.startsWith(start));
      if (isSummary || /^\d+ passed, \d+ failed/.test(line)) summary.push(line);
    }
  };
  const isClosed = once(child, "close");
  await Promise.all([read(child.stdout), read(child.stderr)]);
  const [code, signal] = (await isClosed) as [number | null, string | null];
  clearTimeout(timer);
  const ending = isOverdue ? `ended after ${limit.toFixed(0)} s` : String(code ?? signal);
  return { name, seconds: (performance.now() - startedAt) / 1000, ending, summary };
}

async function runAll(common: CommonOptions): Promise<readonly Outcome[]> {
  const endsAt = performance.now() + 1000 * count("total", options.total);
  const outcomes: Outcome[] = [];
  for (const name of options.only.split(",")) {
    const left = (endsAt - performance.now()) / 1000;
    if (!programs[name])
      throw new Error(`Unknown program ${name}; known are ${Object.keys(programs).join(", ")}.`);
    if (left < 20) {
      outcomes.push({ name, seconds: 0, ending: "not run: no time left", summary: [] });
      continue;
    }
    console.log(`\n=== ${name}, ${Math.min(left, programs[name].seconds).toFixed(0)} s at most`);
    // The other programs write their own files.
    const file = name === "suites" ? new Results("suites", common) : undefined;
    const onLine = (line: string): void => (file ? file.line(line) : console.log(line));
    outcomes.push(await runProgram(name, Math.min(left, programs[name].seconds), onLine));
  }
  return outcomes;
}

// Programs lead their own process groups, which Ctrl-C in the terminal does not reach.
process.on("SIGINT", () => process.exit(130));

const outcomes = await runAll(options);
console.log("\n=== summary");
const results = new Results("summary", options);
for (const { name, summary } of outcomes) {
  if (summary.length > 0) results.line(`${name}:`);
  for (const line of summary) results.line(`  ${line}`);
}
results.line();
results.table([
  ["part", "seconds", "ending"],
  ...outcomes.map(({ name, seconds, ending }) => [
    name,
    seconds.toFixed(0),
    ending === "0" ? "good" : ending,
  ]),
]);
if (outcomes.some(({ ending }) => ending !== "0")) process.exitCode = 1;

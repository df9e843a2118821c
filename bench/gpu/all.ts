/**
 * `npm run bench:gpu`: everything there is to measure and to prove on a GPU, part after part, each in a process of its own
 * with a limit of its time. A part that fails is told, and the next one runs. The summary comes last.
 *
 *   npm run bench:gpu -- --only eager,soak     some of the parts, in this order
 *   npm run bench:gpu -- --peer step.py        PyTorch's step beside ours, by a script that prints "ms/step"
 *   npm run bench:gpu -- --only compiled --torch torch.py --jax jax.py    the compiled step beside the peers' own
 *   npm run bench:gpu -- --total 900           seconds for all of them; a part that has no time left is left out
 *   npm run bench:gpu -- --small --emulator    a trial where there is no GPU
 *
 * A part alone takes more options: `node --conditions=holdfast-source dist/bench/gpu/eager.js --batch 64`.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { repositoryRoot } from "../../test/support/repository.js";
import { type CommonOptions, commonArguments, commonOptions, count } from "./options.js";
import { Results, verdicts } from "./results.js";

const { values: options } = parseArgs({
  options: {
    ...commonOptions,
    only: {
      type: "string",
      default: "gradients,errors,eager,compiled,soak,start,sanitizer,suites,parity,job,job-soak,recorder",
    },
    peer: { type: "string", default: "" },
    torch: { type: "string", default: "" },
    jax: { type: "string", default: "" },
    checker: { type: "string", default: "" },
    total: { type: "string", default: "570" },
    small: { type: "boolean", default: false },
  },
});

interface Part {
  /** Where it does not end by itself. */
  readonly seconds: number;
  readonly command: readonly string[];
  /** What makes it a matter of seconds on the emulator. */
  readonly small: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

/** Most of what a suite does on a GPU is compiling: a process for each core, less some for the rest of the machine. */
const atOnce = String(Math.max(2, Math.floor(0.75 * availableParallelism())));

const own = (name: string, ...args: string[]): readonly string[] => [
  "--conditions=holdfast-source",
  join(repositoryRoot, `dist/bench/gpu/${name}.js`),
  ...commonArguments(options),
  ...args,
];
const given = (name: "peer" | "checker"): string[] =>
  options[name] === "" ? [] : [`--${name}`, options[name]];
const named = (name: "torch" | "jax"): string[] => (options[name] === "" ? [] : [`--${name}`, options[name]]);
const fewSteps = ["--batch", "2", "--rows", "64"];
const fewSamples = ["--samples", "60", "--batch", "4"];

const parts: Readonly<Record<string, Part>> = {
  gradients: { seconds: 90, command: own("gradients"), small: ["--batch", "2"] },
  errors: {
    seconds: 270,
    command: own("errors", "--seconds", "170"),
    small: ["--only", "matmul,layerNorm", "--draws", "1", "--processes", "1"],
  },
  eager: {
    seconds: 200,
    command: own("eager", ...given("peer")),
    small: [...fewSteps, "--groups", "1", "--steps", "2", "--precisions", "tf32"],
  },
  compiled: {
    seconds: 420,
    command: own("compiled", "--kernels", ...named("torch"), ...named("jax")),
    small: [...fewSteps, "--groups", "1", "--steps", "2", "--precisions", "tf32", "--curves", "2"],
  },
  soak: {
    seconds: 120,
    command: own("soak"),
    small: ["--batch", "4", "--rows", "16", "--steps", "40", "--every", "10"],
  },
  parity: { seconds: 240, command: own("parity"), small: [...fewSamples, "--batches", "1"] },
  job: {
    seconds: 420,
    command: own("job"),
    small: ["--samples", "30", "--batch", "10", "--epochs", "1", "--precisions", "f32", "--cut", "none"],
  },
  "job-soak": {
    seconds: 240,
    command: own("job-soak"),
    small: [...fewSamples, "--steps", "4", "--every", "2"],
  },
  recorder: {
    seconds: 120,
    command: own("recorder"),
    small: ["--batch", "4", "--rows", "8", "--epochs", "2", "--rounds", "1", "--steps", "1000"],
  },
  start: { seconds: 150, command: own("start"), small: [...fewSteps, "--cold", "1", "--warm", "1"] },
  sanitizer: {
    seconds: 560,
    command: own("sanitizer", ...given("checker")),
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
  /** "0", another exit code, or why there is none. */
  readonly ending: string;
  /** The part's own summary. */
  readonly summary: readonly string[];
}

/** Runs a part; every line goes to `onLine` as it comes. */
async function runPart(name: string, limit: number, onLine: (line: string) => void): Promise<Outcome> {
  const { command, small, environment } = parts[name]!;
  const startedAt = performance.now();
  // A group of its own: what the part has started ends with it.
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
      const isVerdict = Object.values(verdicts).some((start) => line.startsWith(start));
      if (isVerdict || /^\d+ passed, \d+ failed/.test(line)) summary.push(line);
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
    if (!parts[name])
      throw new Error(`There is no part ${name}; there are ${Object.keys(parts).join(", ")}.`);
    if (left < 20) {
      outcomes.push({ name, seconds: 0, ending: "not run: no time left", summary: [] });
      continue;
    }
    console.log(`\n=== ${name}, ${Math.min(left, parts[name].seconds).toFixed(0)} s at most`);
    // The other parts write files of their own.
    const file = name === "suites" ? new Results("suites", common) : undefined;
    const onLine = (line: string): void => (file ? file.line(line) : console.log(line));
    outcomes.push(await runPart(name, Math.min(left, parts[name].seconds), onLine));
  }
  return outcomes;
}

// Parts lead groups of their own, which Ctrl-C in the terminal does not reach.
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

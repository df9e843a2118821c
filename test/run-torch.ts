/**
 * Runs random model programs, compiled and on the CPU, and compares every call with PyTorch: results, parameters and gradients. In f64 all calls are compared; in f32 the first, because rounding errors grow from there.
 *
 *   node dist/test/run-torch.js --from 0 --count 5000 --out /tmp/torch.json
 *
 * Needs a Python with PyTorch 1.13 or later: apt-get install python3-torch. The exit status is 1 if any differ.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import fc from "fast-check";
import { Device, type HoldfastError } from "holdfast";
import { GiB } from "../src/units/index.js";
import { readOptions } from "./support/command-line.js";
import { fakeHost } from "./support/fake-host.js";
import { anyModelProgram } from "./support/random-models/generate.js";
import type { ModelProgram } from "./support/random-models/program.js";
import { pruneModel } from "./support/random-models/prune.js";
import { type ModelRunRecord, runModel } from "./support/random-models/run.js";
import { type TorchAnswer, torchLine, torchRecord, withoutDropout } from "./support/random-models/torch.js";
import { firstFar } from "./support/random-programs/compare.js";
import { fromJson, hasHugeLiteral, hasSpecialLiteral, toJson } from "./support/random-programs/literals.js";
import type { ProgramRun, StepRecord } from "./support/random-programs/run.js";
import { repositoryRoot } from "./support/repository.js";
import { tolerances } from "./tolerances.js";

const options = readOptions(import.meta.url, {
  from: { type: "string", default: "0" },
  count: { type: "string", default: "1000" },
  python: { type: "string", default: "/usr/bin/python3" },
  out: { type: "string" },
  shrink: { type: "string", default: "1" },
});

const blockSize = 100;
const host = fakeHost(4 * GiB, 4 * GiB);
const cpu = new Device("cpu", {
  ...{ memory: "512MiB", stallAfter: "off", environment: {}, hostRoot: host.root, threads: 1, capture: "on" },
  print: () => {},
});
const python: ChildProcess = spawn(options.python, [join(repositoryRoot, "test/oracle/random_models.py")], {
  stdio: ["pipe", "pipe", "inherit"],
});
const answers = createInterface({ input: python.stdout! })[Symbol.asyncIterator]();
const any = anyModelProgram({ dtypes: ["f64"] });

const failures: { number: number; message: string; program: ModelProgram }[] = [];
const counts = { programs: 0, calls: 0, f32: 0, steep: 0, limits: 0, huge: 0 };
const startedAt = performance.now();
const [from, count] = [Number(options.from), Number(options.count)];
const shrunk = new Map<string, number>();
for (let number = from; number < from + count; number++) {
  const seed = 500_001 + Math.floor(number / blockSize);
  const block = fc.sample(any, { seed, numRuns: blockSize });
  for (let at = number % blockSize; at < blockSize && number < from + count; at++, number++) {
    const program = withoutDropout(fromJson<ModelProgram>(toJson(block[at])));
    const message = await compare(program);
    if (message === undefined) continue;
    const sort = message.replaceAll(/[-\d.e]+/g, "N").slice(0, 60);
    const seen = shrunk.get(sort) ?? 0;
    shrunk.set(sort, seen + 1);
    const smallest = seen < Number(options.shrink) ? await shrink(program, sort) : program;
    failures.push({ number, message, program: smallest });
    console.log(`program ${number}: ${message}`);
    if (smallest !== program) console.log(toJson({ note: "", program: smallest }));
  }
  number -= 1;
  write(number + 1 - from);
}
write(count);
python.stdin!.end();
cpu.close();
host.remove();
if (failures.length > 0) process.exitCode = 1;

function write(done: number): void {
  const seconds = Math.round((performance.now() - startedAt) / 100) / 10;
  const summary = {
    ...options,
    done,
    seconds,
    ...counts,
    failed: failures.length,
    sorts: Object.fromEntries(shrunk),
  };
  if (options.out !== undefined) writeFileSync(options.out, `${toJson({ ...summary, failures }, 1)}\n`);
  console.log(toJson(summary));
}

/** The first difference; undefined if there is none. */
async function compare(program: ModelProgram): Promise<string | undefined> {
  let actual: ModelRunRecord;
  try {
    actual = runModel(cpu, program, { isCompiled: true });
  } catch (error) {
    return `ours: ${(error as HoldfastError).code ?? ""} ${(error as Error).message.slice(0, 200)}`;
  }
  python.stdin!.write(`${toJson(torchLine(program, actual.rates))}\n`);
  const { value } = await answers.next();
  const answer = JSON.parse(value as string) as TorchAnswer;
  if ("error" in answer) return `PyTorch: ${answer.error}`;
  const steps = answer.calls.map(torchRecord);
  counts.programs += 1;
  counts.calls += steps.length;
  // Next to a number like 2³², two orders of a sum differ in the digits of the others.
  const difference = differenceOf(
    actual,
    { steps, rejections: [] },
    hasSpecialLiteral(program.steps) ? "f32" : "f64",
  );
  if (difference !== undefined && isLimit(program, actual, steps)) {
    counts.limits += 1;
    return undefined;
  }
  // After a product with 2⁵³, softmax is dominated by rounding errors: PyTorch's own versions differ there.
  if (difference !== undefined && hasHugeLiteral(program.steps) && !/NaN|Infinity/.test(difference)) {
    counts.huge += 1;
    return undefined;
  }
  if (difference !== undefined) return `f64: ${difference}`;
  const single = runModel(cpu, { ...program, dtype: "f32" }, { isCompiled: true });
  counts.f32 += 1;
  const farSingle = differenceOf(
    { ...single, steps: single.steps.slice(0, 1) },
    { steps: steps.slice(0, 1), rejections: [] },
    "f32",
  );
  if (farSingle === undefined) return undefined;
  counts.steep += 1;
  return undefined;
}

/**
 * At an infinite logit PyTorch's binary cross-entropy is ∞ − ∞, which is NaN. Holdfast's is the limit: the
 * loss of a certain wrong answer is infinite.
 */
function isLimit({ loss }: ModelProgram, actual: ProgramRun, reference: readonly StepRecord[]): boolean {
  const name = "result loss";
  return (
    loss.loss === "BCEWithLogitsLoss" &&
    reference.some((step, index) => {
      const loss = actual.steps[index]?.get(name)?.[0];
      return Number.isNaN(step.get(name)?.[0]) && loss === Infinity;
    })
  );
}

function differenceOf(actual: ProgramRun, expected: ProgramRun, dtype: "f64" | "f32"): string | undefined {
  const actualSteps = actual.steps.slice(0, expected.steps.length).map((step, index) => {
    const names = [...expected.steps[index]!.keys()];
    return new Map(names.flatMap((name) => (step.has(name) ? [[name, step.get(name)!] as const] : [])));
  });
  const missing = actual.steps
    .slice(0, expected.steps.length)
    .flatMap((step, index) =>
      [...step.keys()].filter((name) => isCompared(name) && !expected.steps[index]!.has(name)),
    );
  if (missing.length > 0) return `PyTorch has no ${missing[0]}`;
  return firstFar({ steps: actualSteps, rejections: [] }, expected, tolerances.trajectory[dtype]);
}

/** Moments and random states have no name there. */
function isCompared(name: string): boolean {
  return !name.startsWith("optimizer's") && !name.startsWith("kept") && name !== "random state";
}

async function shrink(program: ModelProgram, sort: string): Promise<ModelProgram> {
  // The pruning is synchronous and PyTorch's side is not: candidates are tried in rounds.
  let left = program;
  for (let isSmaller = true; isSmaller; ) {
    isSmaller = false;
    const candidates: ModelProgram[] = [];
    pruneModel(left, (candidate) => {
      if (candidate.dtype === program.dtype) candidates.push(candidate);
      return false;
    });
    for (const candidate of candidates) {
      const message = await compare(candidate).catch(() => undefined);
      if (message?.replaceAll(/[-\d.e]+/g, "N").slice(0, 20) !== sort.slice(0, 20)) continue;
      left = candidate;
      isSmaller = true;
      break;
    }
  }
  return left;
}

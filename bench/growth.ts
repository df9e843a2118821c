/**
 * `npm run bench:growth`: how the time and the memory of planning grow with a GPT's layers, context and width. Steps are planned for a GPU
 * that runs nothing. Each size is planned several times in each of several processes, and the smallest CPU time of a stage counts: the
 * first plan of a process also compiles JavaScript, and other programs share the machine.
 */

import "./source-modules.js";
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { arange, type Device, nn, optim, type Tensor, zeros } from "holdfast";
import { Guards } from "../src/autograd/index.js";
import { listSources } from "../src/compile/execute/emit.js";
import { WeightCopies } from "../src/compile/execute/weight-copies.js";
import { assignStreams, planStep, streamOptions, traceStep } from "../src/compile/index.js";
import { planMemory } from "../src/compile/memory/plan.js";
import { phases, rewritePhases } from "../src/compile/pipeline.js";
import { Program } from "../src/compile/program/program.js";
import { lifetimesOf } from "../src/compile/schedule/liveness.js";
import { scheduleCalls } from "../src/compile/schedule/schedule.js";
import { placeConstants } from "../src/compile/trace/constants.js";
import { verifyPlan } from "../src/compile/verify/verify.js";
import { answerHelp } from "../test/support/command-line.js";
import { storageWithoutMemory, withNullGpu } from "../test/support/null-gpu.js";
import { growsTooFast, growthNoise } from "./growth-limit.js";

answerHelp(import.meta.url);

interface Sizes {
  readonly layers: number;
  readonly context: number;
  readonly width: number;
}

interface Figures {
  readonly calls: number;
  readonly planned: number;
  readonly planBytes: number;
  /** Bytes of the JavaScript heap that the plan holds. */
  readonly heapBytes: number;
  /** CPU milliseconds by stage. */
  readonly ms: Readonly<Record<string, number>>;
}

const [vocabulary, batch, headWidth] = [512, 1, 64];

class Gpt extends nn.Module {
  readonly words: nn.Embedding;
  readonly places: nn.Embedding;
  readonly layers: nn.ModuleList<nn.TransformerEncoderLayer>;
  readonly norm: nn.LayerNorm;
  readonly head: nn.Linear;

  constructor({ layers, context, width }: Sizes) {
    super();
    this.words = new nn.Embedding(vocabulary, width);
    this.places = new nn.Embedding(context, width);
    const options = { dimFeedforward: 4 * width, dropout: 0, normFirst: true, activation: "gelu" } as const;
    const layer = () => new nn.TransformerEncoderLayer(width, width / headWidth, options);
    this.layers = new nn.ModuleList(Array.from({ length: layers }, layer));
    this.norm = new nn.LayerNorm(width);
    this.head = new nn.Linear(width, vocabulary, { bias: false });
  }

  forward(text: Tensor): Tensor {
    const positions = arange(text.shape[1] ?? 0, undefined, 1, { device: text.device });
    let h = this.words.forward(text).add(this.places.forward(positions));
    for (const layer of this.layers) h = layer.forward(h, { isCausal: true });
    return this.head.forward(this.norm.forward(h)); // [batch, context, vocabulary]
  }
}

/** Runs a function and adds its CPU time to a stage. */
function timed<T>(ms: Record<string, number>, stage: string, run: () => T): T {
  const start = process.cpuUsage();
  const result = run();
  const { user, system } = process.cpuUsage(start);
  ms[stage] = (ms[stage] ?? 0) + (user + system) / 1000;
  return result;
}

function trainingStep(device: Device, sizes: Sizes): () => void {
  const model = new Gpt(sizes).to(device);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
  const text = zeros([batch, sizes.context], { dtype: "i32", device });
  return () => {
    const logits = model.forward(text).reshape([-1, vocabulary]);
    nn.functional.crossEntropy(logits, text.reshape([-1])).backward();
    optim.clipGradNorm(model.parameters(), 1, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
  };
}

/** Plans a step stage by stage. */
function measure(sizes: Sizes): Figures {
  return withNullGpu(
    "bf16",
    (device) => {
      const { runtime } = device;
      const step = trainingStep(device, sizes);
      const heapBefore = heapBytes();
      const ms: Record<string, number> = {};
      const guards = new Guards();
      const trace = timed(ms, "trace", () =>
        traceStep(runtime, () => device.inTracedStep(() => guards.watch(device, step))),
      );
      guards.undo();
      const { calls } = placeConstants(runtime, trace.calls, trace.constants);
      const copies = new WeightCopies(runtime);
      const program = timed(ms, "graph", () => new Program(calls));
      for (const name of rewritePhases) {
        if (name === "rematerialize") continue;
        timed(ms, name, () => {
          program.renumber();
          phases[name].run(program, runtime, { isTuned: true, deadOnExit: trace.deadOnExit, copies });
        });
      }
      const planned = program.calls;
      const schedule = timed(ms, "schedule", () => scheduleCalls(planned, { streams: 0, lag: 0 }));
      const plan = timed(ms, "memory", () => planMemory(lifetimesOf(schedule)));
      timed(ms, "verify", () => verifyPlan(planned, schedule, plan));
      const whole = planStep(runtime, trace, { gemmAlgorithms: false });
      timed(ms, "side streams", () => assignStreams(runtime, whole, streamOptions.streams));
      timed(ms, "kernel sources", () => listSources(runtime, planned, storageWithoutMemory));
      return {
        ...{ calls: calls.length, planned: planned.length, planBytes: plan.bytes },
        ...{ heapBytes: heapBytes() - heapBefore, ms },
      };
    },
    { memory: "3900MiB" },
  );
}

function heapBytes(): number {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}

const [processes, plansPerProcess] = [2, 3];

/** The smallest figures of several processes. */
function measureApart(sizes: Sizes): Figures {
  const runs = Array.from({ length: processes }, (): Figures => {
    const { stdout, stderr, status } = spawnSync(
      process.execPath,
      ["--expose-gc", ...process.execArgv, process.argv[1] ?? "", JSON.stringify(sizes)],
      { encoding: "utf8" },
    );
    if (status !== 0) throw new Error(`${JSON.stringify(sizes)}: ${stderr}`);
    return JSON.parse(stdout) as Figures;
  });
  return smallestOf(runs);
}

function smallestOf(runs: readonly Figures[]): Figures {
  const [first] = runs as [Figures];
  const smallest = (stage: string): number => Math.min(...runs.map(({ ms }) => ms[stage] ?? 0));
  const ms = Object.fromEntries(Object.keys(first.ms).map((stage) => [stage, smallest(stage)]));
  return { ...first, heapBytes: Math.min(...runs.map((run) => run.heapBytes)), ms };
}

const lines: string[] = [];

function tell(line = ""): void {
  console.log(line);
  lines.push(line);
}

/** Below this, a time or a size says little. */
const floors = { ms: 20, bytes: 4 * 2 ** 20 } as const;

/** A series of plans that differ in one size, with the growth of each stage between neighbours. */
function tellSeries(name: keyof Sizes, values: readonly number[], base: Sizes): number {
  const results = values.map((value) => measureApart({ ...base, [name]: value }));
  const others = Object.entries(base).filter(([key]) => key !== name);
  tell(`${name}; ${others.map(([key, value]) => `${key} ${value}`).join(", ")}, batch ${batch}, bf16`);
  const row = (label: string, cells: readonly string[]): void =>
    tell(`  ${label.padEnd(22)}${cells.map((cell) => cell.padStart(16)).join("")}`);
  row(name, values.map(String));
  row(
    "calls of the trace",
    results.map(({ calls }) => String(calls)),
  );
  row(
    "calls of the plan",
    results.map(({ planned }) => String(planned)),
  );
  row(
    "step memory, MiB",
    results.map(({ planBytes }) => (planBytes / 2 ** 20).toFixed(1)),
  );
  let exceeding = 0;
  const growth = (label: string, numbers: readonly number[], isTime: boolean): void => {
    const points = numbers.map((amount, index) => ({ amount, calls: results[index]?.calls ?? 1 }));
    const isOver = growsTooFast(points, isTime ? floors.ms : floors.bytes);
    if (isOver) exceeding += 1;
    const cells = numbers.map((number, index) => {
      const [before, text] = [numbers[index - 1], isTime ? number.toFixed(0) : (number / 2 ** 20).toFixed(1)];
      if (before === undefined || before <= 0 || number <= 0) return text;
      const exponent = Math.log(number / before) / Math.log((values[index] ?? 1) / (values[index - 1] ?? 1));
      return `${text} ^${exponent.toFixed(2)}${isOver && index === numbers.length - 1 ? "!" : " "}`;
    });
    row(label, cells);
  };
  for (const stage of Object.keys(results[0]?.ms ?? {}))
    growth(
      stage,
      results.map(({ ms }) => ms[stage] ?? 0),
      true,
    );
  growth(
    "sum",
    results.map(({ ms }) => Object.values(ms).reduce((sum, value) => sum + value, 0)),
    true,
  );
  growth(
    "heap, MiB",
    results.map((result) => result.heapBytes),
    false,
  );
  tell();
  return exceeding;
}

const [, , sizes] = process.argv;
if (sizes?.startsWith("{")) {
  const runs = Array.from({ length: plansPerProcess }, () => measure(JSON.parse(sizes) as Sizes));
  process.stdout.write(JSON.stringify(smallestOf(runs)));
} else {
  tell(`${new Date().toISOString()}, node ${process.version}, ${process.platform} ${process.arch}`);
  tell(`CPU milliseconds by stage, the smallest of ${processes} × ${plansPerProcess} plans;`);
  tell("^e: grows with the size to the power of e;");
  tell(`!: grows faster than n log n in the number n of the trace's calls, by a factor above ${growthNoise}`);
  tell();
  const exceeding =
    tellSeries("layers", [1, 4, 16, 64], { layers: 1, context: 256, width: 128 }) +
    tellSeries("context", [64, 256, 1024, 4096, 8192], { layers: 4, context: 64, width: 128 }) +
    tellSeries("width", [64, 256, 1024, 4096], { layers: 1, context: 256, width: 64 });
  tell(`${exceeding} stages grow faster than n log n`);
  const folder = sizes ?? "bench/results";
  mkdirSync(folder, { recursive: true });
  const day = new Date().toISOString().slice(0, 10);
  const file = join(folder, `${day}-growth-node${process.versions.node.split(".")[0]}-${process.arch}.txt`);
  writeFileSync(file, `${lines.join("\n")}\n`);
  console.log(`→ ${file}`);
}

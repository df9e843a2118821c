/**
 * `npm run bench:plan`: the quality of plans, and the time that they take. First three training steps: the
 * plan's peak compared with the maximum of live bytes, the lower bound of every plan. Then transformers with
 * up to some 20,000 calls: the time of each stage, and how it grows.
 */

import "./source-modules.js";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  arange,
  crossasset,
  Device,
  formatBytes,
  manualSeed,
  nn,
  optim,
  randn,
  type Tensor,
  tensor,
} from "holdfast";
import { Guards } from "../src/autograd/index.js";
import { fuse } from "../src/compile/fusion/vertical/fuse.js";
import { traceStep } from "../src/compile/index.js";
import { planMemory } from "../src/compile/memory/plan.js";
import { propagateCopies } from "../src/compile/passes/copy-propagation.js";
import { eliminateCommonCalls } from "../src/compile/passes/cse.js";
import { Program } from "../src/compile/program/program.js";
import { lifetimesOf, lowerBound } from "../src/compile/schedule/liveness.js";
import { placeConstants } from "../src/compile/trace/constants.js";
import { verifyPlan } from "../src/compile/verify/verify.js";
import { answerHelp } from "../test/support/command-line.js";

answerHelp(import.meta.url);

const cpu = new Device("cpu", { memory: "3GiB", stallAfter: "off", print: () => {} });
const lines: string[] = [];

function tell(line = ""): void {
  console.log(line);
  lines.push(line);
}

/** A model in training. */
interface Workload {
  readonly name: string;
  step(): { readonly loss: Tensor };
}

function trainingOf(
  name: string,
  model: nn.Module,
  loss: (x: Tensor, y: Tensor) => Tensor,
  [x, y]: readonly [Tensor, Tensor],
): Workload {
  const onCpu = model.to(cpu);
  const optimizer = new optim.AdamW(onCpu.parameters());
  const step = (): { readonly loss: Tensor } => {
    const value = loss(x, y);
    value.backward();
    optim.clipGradNorm(onCpu.parameters(), 1);
    optimizer.step();
    optimizer.zeroGrad();
    return { loss: value };
  };
  return { name, step };
}

function labelsOf(count: number, classes: number): Tensor {
  return tensor(
    Int32Array.from({ length: count }, (_, index) => index % classes),
    { device: cpu },
  );
}

function crossAsset(): Workload {
  const model = new crossasset.CrossAsset();
  const forward = (x: Tensor, y: Tensor) => nn.functional.crossEntropy(model.forward(x).reshape([-1, 3]), y);
  return trainingOf("CrossAsset, 256 rows", model, forward, [
    randn([256, 12, 193], { device: cpu }),
    labelsOf(3072, 3),
  ]);
}

/** Letters and their positions, layers of attention, and a prediction of the next letter. */
class Characters extends nn.Module {
  readonly letters = new nn.Embedding(40, 64);
  readonly positions = new nn.Embedding(64, 64);
  readonly layers: nn.ModuleList<nn.TransformerEncoderLayer>;
  readonly head = new nn.Linear(64, 40);

  constructor(layers: number) {
    super();
    const layer = () =>
      new nn.TransformerEncoderLayer(64, 4, {
        dimFeedforward: 256,
        dropout: 0.1,
        normFirst: true,
        activation: "gelu",
      });
    this.layers = new nn.ModuleList(Array.from({ length: layers }, layer));
  }

  forward(text: Tensor): Tensor {
    let h = this.letters
      .forward(text)
      .add(this.positions.forward(arange(text.shape[1] ?? 0, undefined, 1, { device: cpu })));
    for (const layer of this.layers) h = layer.forward(h, { isCausal: true });
    return this.head.forward(h);
  }
}

function characters(layers: number, rows = 16): Workload {
  const model = new Characters(layers);
  const forward = (x: Tensor, y: Tensor) => nn.functional.crossEntropy(model.forward(x).reshape([-1, 40]), y);
  const text = labelsOf(rows * 64, 40).reshape([rows, 64]);
  return trainingOf(`characters, ${layers} layers`, model, forward, [text, labelsOf(rows * 64, 40)]);
}

function convnet(): Workload {
  const model = new nn.Sequential(
    new nn.Conv2d(1, 16, 3, { padding: 1 }),
    new nn.ReLU(),
    new nn.MaxPool2d(2),
    new nn.Conv2d(16, 32, 3, { padding: 1 }),
    new nn.ReLU(),
    new nn.MaxPool2d(2),
    new nn.Flatten(),
    new nn.Linear(32 * 7 * 7, 10),
  );
  const forward = (x: Tensor, y: Tensor) => nn.functional.crossEntropy(model.forward(x), y);
  return trainingOf("convnet, 64 images", model, forward, [
    randn([64, 1, 28, 28], { device: cpu }),
    labelsOf(64, 10),
  ]);
}

function timed<T>(times: Record<string, number>, name: string, run: () => T): T {
  const startedAt = performance.now();
  const result = run();
  times[name] = performance.now() - startedAt;
  return result;
}

/** The stages of a plan one by one, with their times. */
function planOf({ step }: Workload) {
  const times: Record<string, number> = {};
  const guards = new Guards();
  const trace = timed(times, "trace", () =>
    traceStep(cpu.runtime, () => cpu.inTracedStep(() => guards.watch(cpu, () => void step()))),
  );
  guards.undo();
  const { calls } = placeConstants(cpu.runtime, trace.calls, trace.constants);
  const program = timed(times, "graph", () => new Program(calls));
  timed(times, "simplify", () => {
    eliminateCommonCalls(program);
    propagateCopies(program);
  });
  timed(times, "fuse", () => {
    program.renumber();
    fuse(cpu.runtime, program);
  });
  const fused = program.calls;
  const schedule = { calls: fused.map((call) => ({ call, stream: 0, after: [] })) };
  const lifetimes = lifetimesOf(schedule);
  const plan = timed(times, "plan", () => planMemory(lifetimes));
  timed(times, "verify", () => verifyPlan(fused, schedule, plan));
  return { calls: calls.length, fused: fused.length, bound: lowerBound(lifetimes), bytes: plan.bytes, times };
}

manualSeed(3);
tell(`${new Date().toISOString()}, node ${process.version}, ${process.platform} ${process.arch}`);
tell();
tell("step                     calls  fused        peak  lower bound   ratio");
for (const workload of [crossAsset(), characters(2), convnet()]) {
  const { calls, fused, bound, bytes } = planOf(workload);
  tell(
    `${workload.name.padEnd(22)} ${String(calls).padStart(7)} ${String(fused).padStart(6)} ${formatBytes(bytes).padStart(11)} ${formatBytes(bound).padStart(12)}  ${(bytes / bound).toFixed(4)}`,
  );
}
tell();
tell(
  "layers  calls   trace   graph  simplify    fuse    plan  verify   ms; last column: plan and verify, µs a call",
);
for (const layers of [30, 60, 120, 240]) {
  const { calls, times } = planOf(characters(layers, 1));
  const cells = ["trace", "graph", "simplify", "fuse", "plan", "verify"].map((name) =>
    (times[name] ?? 0).toFixed(0),
  );
  const perCall = (1000 * ((times["plan"] ?? 0) + (times["verify"] ?? 0))) / calls;
  tell(
    `${String(layers).padStart(6)} ${String(calls).padStart(6)} ${cells.map((cell, index) => cell.padStart([7, 7, 9, 7, 7, 7][index] ?? 7)).join(" ")}   ${perCall.toFixed(1)}`,
  );
}
const folder = process.argv[2] ?? "bench/results";
mkdirSync(folder, { recursive: true });
const file = join(
  folder,
  `${new Date().toISOString().slice(0, 10)}-plan-node${process.versions.node.split(".")[0]}-${process.arch}.txt`,
);
writeFileSync(file, `${lines.join("\n")}\n`);
console.log(`→ ${file}`);
cpu.close();

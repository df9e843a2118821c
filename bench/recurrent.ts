/**
 * `npm run bench:recurrent`, with `-- cuda` on a GPU: a training step of a recurrent layer at growing lengths. The calls of its trace, the time
 * to trace it and to plan and verify it, the planned memory, and the times of the first call, of a replay and of an eager step.
 */

import "./source-modules.js";
import { Device, nn, optim, randn, type Tensor } from "holdfast";
import { Guards } from "../src/autograd/index.js";
import { planStep, traceStep } from "../src/compile/index.js";
import { answerHelp } from "../test/support/command-line.js";

answerHelp(import.meta.url);

const kind = process.argv[2] === "cuda" ? "cuda" : "cpu";
const { batch, input, hidden } =
  kind === "cuda" ? { batch: 64, input: 512, hidden: 512 } : { batch: 16, input: 32, hidden: 32 };
const lengths = [32, 128, 512];
const device = new Device(kind, {
  memory: kind === "cuda" ? "16GiB" : "2GiB",
  stallAfter: "off",
  print: () => {},
});

function training(steps: number): () => Tensor {
  const model = new nn.LSTM(input, hidden).to(device);
  const optimizer = new optim.AdamW(model.parameters());
  const x = device.keep(randn([steps, batch, input], { device }));
  return () => {
    optimizer.zeroGrad();
    const [output] = model.forward(x);
    const loss = output.square().mean();
    loss.backward();
    optimizer.step();
    return loss;
  };
}

/** The shortest time of `count` runs, in milliseconds. */
function bestMs(count: number, run: () => unknown): number {
  let best = Number.POSITIVE_INFINITY;
  for (let index = 0; index < count; index++) {
    const start = performance.now();
    run();
    best = Math.min(best, performance.now() - start);
  }
  return best;
}

const row = (...columns: readonly (string | number)[]): void => {
  const texts = columns.map((column) => (typeof column === "number" ? column.toFixed(1) : column));
  console.log(`| ${texts.join(" | ")} |`);
};

console.log(
  `${kind}: LSTM, batch ${batch}, input ${input}, hidden ${hidden}, f32, forward, backward and AdamW`,
);
row("steps", "calls", "trace ms", "plan and verify ms", "peak MiB", "first call ms", "replay ms", "eager ms");
for (const steps of lengths) {
  const step = training(steps);
  const guards = new Guards();
  const traced = (): ReturnType<typeof traceStep> =>
    traceStep(device.runtime, () => device.inTracedStep(() => guards.watch(device, () => void step())));
  traced();
  const traceMs = bestMs(5, traced);
  const planMs = bestMs(3, () => planStep(device.runtime, traced()));
  const trace = traced();
  guards.undo();
  const compiled = device.compile(step);
  const firstMs = bestMs(1, () => compiled().item());
  for (let call = 0; call < 12; call++) compiled().item();
  const replayMs = bestMs(7, () => compiled().item());
  const peak = compiled.memory()?.peak ?? 0;
  compiled.close();
  const eagerMs = bestMs(4, () => device.step(() => step().item()));
  row(
    `${steps}`,
    `${trace.calls.length}`,
    traceMs,
    planMs - traceMs,
    peak / 2 ** 20,
    firstMs,
    replayMs,
    eagerMs,
  );
}
device.close();

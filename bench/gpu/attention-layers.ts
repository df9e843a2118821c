/**
 * The same transformer block with its attention written in three ways: one `nn.MultiheadAttention`, three `nn.Linear` of one input, and
 * CrossAsset's packed functions. A compiled training step should take the same time for all three.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/attention-layers.js [--emulator] [--batch 256] [--rows 12] [--width 256] [--heads 8] [--layers 3]
 */

import { type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import { readOptions } from "../../test/support/command-line.js";
import { commonOptions, count, openGpu } from "./options.js";
import { Results } from "./results.js";
import { median } from "./training.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  batch: { type: "string", default: "256" },
  rows: { type: "string", default: "12" },
  width: { type: "string", default: "256" },
  heads: { type: "string", default: "8" },
  layers: { type: "string", default: "3" },
  steps: { type: "string", default: "200" },
  explain: { type: "boolean", default: false },
});
const sizes = {
  batch: count("batch", options.batch),
  rows: count("rows", options.rows),
  width: count("width", options.width),
  heads: count("heads", options.heads),
  layers: count("layers", options.layers),
};
const { batch, rows, width, heads, layers } = sizes;
const steps = count("steps", options.steps);

/** [B, S, W] → [B, S, W] */
type Attend = nn.Module & { forward(x: Tensor): Tensor };

class ThreeLinears extends nn.Module {
  readonly q = new nn.Linear(width, width, { bias: false });
  readonly k = new nn.Linear(width, width, { bias: false });
  readonly v = new nn.Linear(width, width, { bias: false });
  readonly o = new nn.Linear(width, width, { bias: false });

  forward(x: Tensor): Tensor {
    const split = (y: Tensor): Tensor => y.unflatten(-1, [heads, width / heads]).transpose(1, 2);
    const [q, k, v] = [this.q, this.k, this.v].map((layer) => split(layer.forward(x)));
    const attended = nn.functional.scaledDotProductAttention(q!, k!, v!);
    return this.o.forward(attended.transpose(1, 2).flatten(-2));
  }
}

class Packed extends nn.Module {
  readonly q = square();
  readonly k = square();
  readonly v = square();
  readonly o = square();

  forward(x: Tensor): Tensor {
    const qkv = nn.functional.fusedProjections(x, [this.q, this.k, this.v]);
    const packed = qkv.reshape([batch, rows, 3, heads, width / heads]);
    return nn.functional.packedAttention(packed).reshape([batch, rows, width]).matmul(this.o);
  }
}

const square = (): nn.Parameter => new nn.Parameter([width, width], nn.init.normal(0, Math.sqrt(1 / width)));

const variants: Readonly<Record<string, () => Attend>> = {
  "packed functions": () => new Packed(),
  MultiheadAttention: () => new nn.MultiheadAttention(width, heads, { bias: false }),
  "three Linear": () => new ThreeLinears(),
};

class Block extends nn.Module {
  readonly attend: Attend;
  readonly norm = new nn.LayerNorm(width);
  readonly up = new nn.Linear(width, 4 * width);
  readonly down = new nn.Linear(4 * width, width);
  readonly norm2 = new nn.LayerNorm(width);

  constructor(attend: Attend) {
    super();
    this.attend = attend;
  }

  forward(x: Tensor): Tensor {
    const middle = this.norm.forward(x.add(this.attend.forward(x)));
    return this.norm2.forward(middle.add(this.down.forward(this.up.forward(middle).gelu())));
  }
}

/** Milliseconds per step, the median of five runs; and the compiler's report. */
function measure(device: Device, make: () => Attend): { ms: number; report: string } {
  manualSeed(1);
  const blocks = new nn.ModuleList(Array.from({ length: layers }, () => new Block(make()))).to(device);
  const parameters = blocks.parameters();
  const optimizer = new optim.AdamW(parameters, { lr: 1e-4 });
  const x = device.keep(randn([batch, rows, width], { device }));
  const step = device.compile((input: Tensor) => {
    let y = input;
    for (const block of blocks) y = block.forward(y);
    const loss = y.square().mean();
    loss.backward();
    optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });
  const run = (times: number): number => {
    const start = performance.now();
    for (let index = 0; index < times; index++) step(x);
    device.runtime.synchronize();
    return (performance.now() - start) / times;
  };
  run(Math.min(20, steps));
  const ms = median(Array.from({ length: 5 }, () => run(steps)));
  return { ms, report: step.explain() };
}

const results = new Results("attention-layers", options);
const table: string[][] = [["ms per step", "f32", "tf32", "bf16"]];
for (const [name, make] of Object.entries(variants)) {
  const row = [name];
  for (const precision of ["f32", "tf32", "bf16"] as const) {
    const gpu = openGpu(options, { device: { precision } });
    const { ms, report } = measure(gpu.device, make);
    if (options.explain) results.line(`${name}, ${precision}\n${report}\n`);
    row.push(ms.toFixed(4));
    gpu.close();
  }
  table.push(row);
}
results.line(`batch ${batch}, ${rows} rows, width ${width}, ${heads} heads, ${layers} layers`);
results.table(table);
results.finish();

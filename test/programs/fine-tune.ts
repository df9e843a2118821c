/** A fine-tune: a network learns one task from many rows. Its saved body then learns another from 32 rows, frozen first and then whole. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type Device,
  device,
  loadWeights,
  manualSeed,
  nn,
  noGrad,
  optim,
  randn,
  saveWeights,
  type Tensor,
} from "holdfast";

interface Task {
  readonly x: Tensor;
  readonly y: Tensor;
}

export class Classifier extends nn.Module {
  readonly body = new nn.Sequential(
    new nn.Linear(16, 64),
    new nn.ReLU(),
    new nn.Linear(64, 32),
    new nn.ReLU(),
  );
  readonly head: nn.Linear;

  constructor(classes: number) {
    super();
    this.head = new nn.Linear(32, classes);
  }

  forward(x: Tensor): Tensor {
    return this.head.forward(this.body.forward(x));
  }
}

/** Two sums of the input decide both tasks: its quadrant (4 classes), and whether their signs agree (2 classes). */
function drawTask(cpu: Device, rows: number, classes: 2 | 4): Task {
  return cpu.step(() => {
    const x = randn([rows, 16]);
    const [a, b] = [x.narrow(1, 0, 8).sum(1).gt(0).to("i32"), x.narrow(1, 8, 8).sum(1).gt(0).to("i32")];
    const y = classes === 4 ? a.mul(2).add(b) : a.eq(b).to("i32");
    return { x: x.keep(), y: y.keep() };
  });
}

/** Trains what requires a gradient. */
function train(cpu: Device, model: Classifier, { x, y }: Task, steps: number, lr: number): void {
  const optimizer = new optim.AdamW(model.parameters(), { lr });
  const step = cpu.compile(() => {
    nn.functional.crossEntropy(model.forward(x), y).backward();
    optimizer.step();
    optimizer.zeroGrad();
  });
  for (let index = 0; index < steps; index++) step();
  step.close();
}

const accuracyOf = (cpu: Device, model: Classifier, { x, y }: Task) =>
  cpu.step(() => noGrad(() => model.forward(x).argmax(-1).eq(y).to("f32").mean().item()));

export interface Result {
  readonly fromScratch: number;
  readonly frozenBody: number;
  readonly fineTuned: number;
}

export async function main(): Promise<Result> {
  const cpu = await device("cpu");
  manualSeed(4);
  const folder = mkdtempSync(join(tmpdir(), "fine-tune-"));
  const path = join(folder, "pretrained.safetensors");
  const [few, unseen] = [drawTask(cpu, 32, 2), drawTask(cpu, 500, 2)];

  const pretrained = new Classifier(4).to(cpu);
  train(cpu, pretrained, drawTask(cpu, 1000, 4), 150, 5e-3);
  saveWeights(path, pretrained);

  const scratch = new Classifier(2).to(cpu);
  train(cpu, scratch, few, 100, 5e-3);
  const fromScratch = accuracyOf(cpu, scratch, unseen);

  const tuned = new Classifier(2).to(cpu);
  loadWeights(path, tuned, { skip: (name) => name.startsWith("head."), strict: false });
  rmSync(folder, { recursive: true });
  tuned.body.requiresGrad_(false);
  train(cpu, tuned, few, 80, 1e-2);
  const frozenBody = accuracyOf(cpu, tuned, unseen);
  tuned.body.requiresGrad_(true);
  train(cpu, tuned, few, 20, 1e-4);
  const fineTuned = accuracyOf(cpu, tuned, unseen);
  cpu.close();
  return { fromScratch, frozenBody, fineTuned };
}

/** One training, written in six ways: eager, compiled, with the batch as an input, accumulated, recomputed, and by a Trainer. All learn alike. */

import {
  checkpoint,
  type Device,
  device,
  manualSeed,
  nn,
  noGrad,
  optim,
  randn,
  type Tensor,
  TensorDataset,
  Trainer,
} from "holdfast";

const rows = 64;

export class Net extends nn.Module {
  readonly input = new nn.Linear(4, 32);
  readonly blocks = new nn.ModuleList(
    [1, 2].map(() => new nn.Sequential(new nn.Linear(32, 64), new nn.GELU(), new nn.Linear(64, 32))),
  );
  readonly output = new nn.Linear(32, 1);

  forward(x: Tensor, recomputes = false): Tensor {
    let h = this.input.forward(x);
    for (const block of this.blocks)
      h = h.add(recomputes ? checkpoint((input) => block.forward(input), h) : block.forward(h));
    return this.output.forward(h).squeeze(1);
  }
}

interface Problem {
  readonly cpu: Device;
  readonly x: Tensor;
  readonly y: Tensor;
  readonly steps: number;
}

/** Trains in one way: calls `run`, which makes all steps. */
type Way = (problem: Problem, model: Net, optimizer: optim.Optimizer) => void | Promise<void>;

const ways = {
  eager({ cpu, x, y, steps }, model, optimizer) {
    for (let index = 0; index < steps; index++) cpu.step(() => update(model, optimizer, x, y));
  },
  compiled({ cpu, x, y, steps }, model, optimizer) {
    const step = cpu.compile(() => update(model, optimizer, x, y));
    for (let index = 0; index < steps; index++) step();
  },
  inputs({ cpu, x, y, steps }, model, optimizer) {
    const step = cpu.compile((x: Tensor, y: Tensor) => update(model, optimizer, x, y));
    for (let index = 0; index < steps; index++) step(x, y);
  },
  accumulated({ cpu, x, y, steps }, model, optimizer) {
    const add = cpu.compile((x: Tensor, y: Tensor) =>
      nn.functional.mseLoss(model.forward(x), y).div(2).backward(),
    );
    const finish = cpu.compile(() => {
      optimizer.step();
      optimizer.zeroGrad();
    });
    for (let index = 0; index < steps; index++) {
      for (const start of [0, rows / 2]) add(x.narrow(0, start, rows / 2), y.narrow(0, start, rows / 2));
      finish();
    }
  },
  recomputed({ cpu, x, y, steps }, model, optimizer) {
    const step = cpu.compile(() => update(model, optimizer, x, y, true));
    for (let index = 0; index < steps; index++) step();
  },
  async trainer({ cpu, x, y, steps }, model, optimizer) {
    const trainer = new Trainer({
      ...{ device: cpu, model, optimizer, batchSize: rows, epochs: steps, shuffle: false },
      data: new TensorDataset(x, y),
      loss: (x, y) => nn.functional.mseLoss(model.forward(x), y),
    });
    await trainer.run();
    trainer.close();
  },
} satisfies Record<string, Way>;

function update(model: Net, optimizer: optim.Optimizer, x: Tensor, y: Tensor, recomputes = false): void {
  nn.functional.mseLoss(model.forward(x, recomputes), y).backward();
  optimizer.step();
  optimizer.zeroGrad();
}

export interface Outcome {
  readonly way: string;
  /** The mean squared error on rows that were not trained on. */
  readonly heldOutError: number;
  readonly weights: Float32Array;
}

export async function main(steps = 60): Promise<Outcome[]> {
  const cpu = await device("cpu");
  const outcomes: Outcome[] = [];
  manualSeed(6);
  const truth = (x: Tensor) =>
    x
      .narrow(1, 0, 2)
      .prod(1)
      .add(x.narrow(1, 2, 2).sum(1));
  const [x, unseen] = [randn([rows, 4]), randn([rows, 4])];
  const [y, wanted] = [truth(x), truth(unseen)];
  for (const [way, run] of Object.entries<Way>(ways)) {
    manualSeed(7);
    const model = new Net().to(cpu);
    await run({ cpu, x, y, steps }, model, new optim.Adam(model.parameters(), { lr: 1e-2 }));
    const heldOutError = cpu.step(() =>
      noGrad(() => nn.functional.mseLoss(model.forward(unseen), wanted).item()),
    );
    outcomes.push({ way, heldOutError, weights: Float32Array.from(model.output.weight.dataSync()) });
  }
  cpu.close();
  return outcomes;
}

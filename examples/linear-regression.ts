/** Linear regression: fits a plane to noisy points. The smallest complete training loop. */

import { device, manualSeed, nn, noGrad, optim, randn, tensor } from "holdfast";
import { runIfMain } from "./run-if-main.js";

export interface Result {
  readonly weights: readonly number[];
  /** The mean squared error on points outside the training data. */
  readonly heldOutError: number;
}

export async function main(print: (line: string) => void = console.log): Promise<Result> {
  const cpu = await device("cpu", { memory: "256MiB" });
  manualSeed(7);
  const truth = tensor([[2], [-3], [0.5]]); // [3, 1]
  const draw = (count: number) => {
    const x = randn([count, 3]);
    return {
      x,
      y: x
        .matmul(truth)
        .add(1)
        .add(randn([count, 1]).mul(0.1)),
    };
  };
  const [train, heldOut] = [draw(512), draw(128)];

  const model = new nn.Linear(3, 1).to(cpu);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.9 });
  for (let step = 1; step <= 100; step++) {
    cpu.step(() => {
      const loss = nn.functional.mseLoss(model.forward(train.x), train.y);
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      if (step % 20 === 0) print(`step ${step}: loss ${loss.item().toFixed(5)}`);
    });
  }

  const heldOutError = cpu.step(() =>
    noGrad(() => nn.functional.mseLoss(model.forward(heldOut.x), heldOut.y).item()),
  );
  const weights = Array.from(await model.weight.data());
  print(
    `weights ${weights.map((weight) => weight.toFixed(3)).join(", ")}; held-out error ${heldOutError.toFixed(5)}`,
  );
  cpu.close();
  return { weights, heldOutError };
}

await runIfMain(import.meta.url, main);

/** A tabular model: numbers and categories of a CSV file, embeddings, and a Trainer that stops early by the area under the ROC curve. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  cat,
  device,
  manualSeed,
  nn,
  noGrad,
  optim,
  parseCsv,
  rand,
  type Tensor,
  TensorDataset,
  Trainer,
  tensor,
} from "holdfast";

const towns = ["Arden", "Borrow", "Cairn", "Dunmore"];
const plans = ["basic", "plus"];

/** Customers leave more often with the basic plan, in two of the towns, when they are young, and after many complaints. */
function writeCustomers(path: string, random: ArrayLike<number>): void {
  const lines = ["age,complaints,town,plan,left"];
  for (let row = 0; row + 5 <= random.length; row += 5) {
    const at = (index: number): number => random[row + index] ?? 0;
    const [age, complaints] = [18 + Math.floor(at(0) * 60), Math.floor(at(1) ** 2 * 8)];
    const [town, plan] = [Math.floor(at(2) * 4), Math.floor(at(3) * 2)];
    const score = (town % 2 ? 1.5 : -1.5) + (plan === 0 ? 1 : -1) + 0.8 * complaints - 0.05 * (age - 20);
    const left = 1 / (1 + Math.exp(-2 * score)) > at(4) ? 1 : 0;
    lines.push(`${age},${complaints},${towns[town]},${plans[plan]},${left}`);
  }
  writeFileSync(path, `${lines.join("\n")}\n`);
}

/** Numbers near 0 and indices of categories, with the labels. */
function readCustomers(path: string): { numbers: number[][]; categories: Int32Array; left: Float32Array } {
  const { columns, rows } = parseCsv(readFileSync(path, "utf8"));
  const { age = [], complaints = [], town = [], plan = [], left = [] } = columns;
  const places = Array.from({ length: rows }, (_, row) => row);
  return {
    numbers: places.map((row) => [(Number(age[row]) - 48) / 17, Number(complaints[row]) / 3]),
    categories: Int32Array.from(
      places.flatMap((row) => [towns.indexOf(String(town[row])), plans.indexOf(String(plan[row]))]),
    ),
    left: Float32Array.from(left, Number),
  };
}

export class Churn extends nn.Module {
  readonly town = new nn.Embedding(towns.length, 3);
  readonly plan = new nn.Embedding(plans.length, 2);
  readonly body = new nn.Sequential(
    new nn.Linear(7, 32),
    new nn.ReLU(),
    new nn.Dropout(0.1),
    new nn.Linear(32, 1),
  );

  /** Logits of leaving, [B]. */
  forward(numbers: Tensor, categories: Tensor): Tensor {
    const town = this.town.forward(categories.select(1, 0));
    const plan = this.plan.forward(categories.select(1, 1));
    return this.body.forward(cat([numbers, town, plan], 1)).squeeze(1);
  }
}

/** The share of pairs of one who left and one who stayed that the scores order rightly. */
function areaUnderCurve(scores: ArrayLike<number>, labels: ArrayLike<number>): number {
  const order = Array.from(labels, (_, row) => row).sort((a, b) => (scores[a] ?? 0) - (scores[b] ?? 0));
  let [stayed, rightPairs] = [0, 0];
  for (const row of order) {
    if (labels[row] === 0) stayed++;
    else rightPairs += stayed;
  }
  return rightPairs / (stayed * (order.length - stayed));
}

export async function main(): Promise<{ epochs: number; heldOutArea: number }> {
  const cpu = await device("cpu");
  manualSeed(12);
  const folder = mkdtempSync(join(tmpdir(), "customers-"));
  const path = join(folder, "customers.csv");
  const random = cpu.step(() => rand([1200 * 5]).dataSync());
  writeCustomers(path, random);
  const { numbers, categories, left } = readCustomers(path);
  rmSync(folder, { recursive: true });

  const [x, kinds] = [tensor(numbers), tensor(categories).reshape([-1, 2])];
  const model = new Churn().to(cpu);
  const scores = (from: number, to: number) =>
    cpu.step(() =>
      noGrad(() => model.forward(x.narrow(0, from, to - from), kinds.narrow(0, from, to - from)).dataSync()),
    );
  const data = new TensorDataset(x.narrow(0, 0, 800), kinds.narrow(0, 0, 800), left.subarray(0, 800));
  const trainer = new Trainer({
    ...{ device: cpu, model, data, batchSize: 50, epochs: 40, clipNorm: 1 },
    optimizer: new optim.AdamW(model.parameters(), { lr: 1e-2 }),
    loss: (numbers, categories, left) =>
      nn.functional.binaryCrossEntropyWithLogits(model.forward(numbers, categories), left),
    evaluate: () => ({ area: areaUnderCurve(scores(800, 1000), left.subarray(800, 1000)) }),
    earlyStopping: { figure: "area", patience: 4, better: "larger" },
  });
  const { epochs } = await trainer.run();
  trainer.close();
  model.eval();
  const heldOutArea = areaUnderCurve(scores(1000, 1200), left.subarray(1000, 1200));
  cpu.close();
  return { epochs: epochs.length, heldOutArea };
}

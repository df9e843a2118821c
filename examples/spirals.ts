/** Two intertwined spirals: a small network learns to classify their points. */

import { DataLoader, device, manualSeed, nn, noGrad, optim, type Tensor, TensorDataset } from "holdfast";
import { runIfMain } from "./run-if-main.js";

export interface Result {
  readonly heldOutAccuracy: number;
}

/** Alternating points of both spirals: coordinates [N, 2] and labels. */
function drawSpirals(count: number, phase: number): { points: Float32Array; labels: Int32Array } {
  const points = new Float32Array(count * 2);
  const labels = new Int32Array(count);
  for (let index = 0; index < count; index++) {
    const label = index % 2;
    const along = (index + phase) / count;
    const angle = along * 3 * Math.PI + label * Math.PI;
    points.set([along * Math.cos(angle), along * Math.sin(angle)], index * 2);
    labels[index] = label;
  }
  return { points, labels };
}

export async function main(print: (line: string) => void = console.log): Promise<Result> {
  const cpu = await device("cpu", { memory: "256MiB" });
  manualSeed(1);
  const [train, heldOut] = [drawSpirals(600, 0), drawSpirals(200, 0.5)];
  const data = new TensorDataset(
    { values: train.points, shape: [600, 2] },
    { values: train.labels, shape: [600] },
  );
  const batches = new DataLoader(data, { batchSize: 100, shuffle: true, device: cpu });

  const model = new nn.Sequential(
    new nn.Linear(2, 64),
    new nn.Tanh(),
    new nn.Linear(64, 64),
    new nn.Tanh(),
    new nn.Linear(64, 2),
  ).to(cpu);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-2 });

  for (let epoch = 1; epoch <= 60; epoch++) {
    let total = 0;
    for (const [x, y] of batches) {
      total += cpu.step(() => {
        const loss = nn.functional.crossEntropy(model.forward(x), y);
        loss.backward();
        optimizer.step();
        optimizer.zeroGrad();
        return loss.item();
      });
    }
    if (epoch % 15 === 0) print(`epoch ${epoch}: loss ${(total / batches.length).toFixed(4)}`);
  }

  const heldOutAccuracy = cpu.step(() =>
    noGrad(() => {
      const x = cpu.fromHost(heldOut.points, [200, 2], "f32");
      const y = cpu.fromHost(heldOut.labels, [200], "i32");
      return accuracyOf(model.forward(x), y);
    }),
  );
  print(`held-out accuracy ${(100 * heldOutAccuracy).toFixed(1)} %`);
  cpu.close();
  return { heldOutAccuracy };
}

function accuracyOf(logits: Tensor, labels: Tensor): number {
  return logits.argmax(-1).eq(labels).to("f32").mean().item();
}

await runIfMain(import.meta.url, main);

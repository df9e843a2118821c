/** A small convolutional network reads generated digits: strokes on 12 × 12 pixels, shifted and with noise. */

import {
  DataLoader,
  type Device,
  device,
  manualSeed,
  nn,
  noGrad,
  optim,
  rand,
  TensorDataset,
} from "holdfast";
import { runIfMain } from "./run-if-main.js";

export interface Result {
  readonly heldOutAccuracy: number;
}

const side = 12;

/** The strokes of each digit: top, upper left and right, middle, lower left and right, bottom. */
const strokesOfDigits = [
  [1, 1, 1, 0, 1, 1, 1],
  [0, 0, 1, 0, 0, 1, 0],
  [1, 0, 1, 1, 1, 0, 1],
  [1, 0, 1, 1, 0, 1, 1],
  [0, 1, 1, 1, 0, 1, 0],
  [1, 1, 0, 1, 0, 1, 1],
  [1, 1, 0, 1, 1, 1, 1],
  [1, 0, 1, 0, 0, 1, 0],
  [1, 1, 1, 1, 1, 1, 1],
  [1, 1, 1, 1, 0, 1, 1],
] as const;

/** Each stroke from one corner of a 4 × 8 field to another: x, y to x, y. */
const strokes = [
  [0, 0, 4, 0],
  [0, 0, 0, 4],
  [4, 0, 4, 4],
  [0, 4, 4, 4],
  [0, 4, 0, 8],
  [4, 4, 4, 8],
  [0, 8, 4, 8],
] as const;

/** Images [count, 1, side, side] of random digits, and their labels. */
function drawDigits(cpu: Device, count: number): { images: Float32Array; labels: Int32Array } {
  const perImage = 4 + side * side;
  const numbers = cpu.step(() => rand([count * perImage]).dataSync());
  const images = new Float32Array(count * side * side);
  const labels = new Int32Array(count);
  for (let index = 0; index < count; index++) {
    const [which = 0, right = 0, down = 0, slant = 0, ...noise] = numbers.subarray(
      index * perImage,
      (index + 1) * perImage,
    );
    const digit = Math.floor(which * 10);
    const image = images.subarray(index * side * side, (index + 1) * side * side);
    const [left, top, lean] = [1 + right * 5, down * 3, (slant - 0.5) * 2];
    labels[index] = digit;
    for (const [number, [fromX, fromY, toX, toY]] of strokes.entries()) {
      if (!strokesOfDigits[digit]?.[number]) continue;
      for (let step = 0; step <= 8; step++) {
        const y = top + fromY + ((toY - fromY) * step) / 8;
        const x = left + fromX + ((toX - fromX) * step) / 8 + (lean * (y - top)) / 8;
        const [column, row] = [Math.round(x), Math.round(y)];
        if (column >= 0 && column < side && row >= 0 && row < side) image[row * side + column] = 1;
      }
    }
    for (const [dot, value] of noise.entries()) image[dot] = (image[dot] ?? 0) + (value - 0.5) * 0.6;
  }
  return { images, labels };
}

/** Two convolutions with pooling, and a linear layer. */
export function makeModel(): nn.Sequential {
  return new nn.Sequential(
    new nn.Conv2d(1, 8, 3, { padding: 1 }), // [B, 8, 12, 12]
    new nn.ReLU(),
    new nn.MaxPool2d(2), // [B, 8, 6, 6]
    new nn.Conv2d(8, 16, 3, { padding: 1 }), // [B, 16, 6, 6]
    new nn.ReLU(),
    new nn.MaxPool2d(2), // [B, 16, 3, 3]
    new nn.Flatten(), // [B, 144]
    new nn.Linear(144, 10),
  );
}

export async function main(
  print: (line: string) => void = console.log,
  { epochs = 6 } = {},
): Promise<Result> {
  const cpu = await device("cpu", { memory: "512MiB" });
  manualSeed(3);
  const [train, heldOut] = [drawDigits(cpu, 1500), drawDigits(cpu, 300)];
  const data = new TensorDataset(
    { values: train.images, shape: [1500, 1, side, side] },
    { values: train.labels, shape: [1500] },
  );
  const batches = new DataLoader(data, { batchSize: 50, shuffle: true, device: cpu });
  const model = makeModel().to(cpu);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 3e-3 });

  for (let epoch = 1; epoch <= epochs; epoch++) {
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
    print(`epoch ${epoch}: loss ${(total / batches.length).toFixed(4)}`);
  }

  model.eval();
  const heldOutAccuracy = cpu.step(() =>
    noGrad(() => {
      const x = cpu.fromHost(heldOut.images, [300, 1, side, side], "f32");
      const y = cpu.fromHost(heldOut.labels, [300], "i32");
      return model.forward(x).argmax(-1).eq(y).to("f32").mean().item();
    }),
  );
  print(`held-out accuracy ${(100 * heldOutAccuracy).toFixed(1)} %`);
  cpu.close();
  return { heldOutAccuracy };
}

await runIfMain(import.meta.url, main);

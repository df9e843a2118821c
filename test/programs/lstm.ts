/** A bidirectional LSTM over sequences of unequal lengths. It tells whether the numbers that carry a mark add up to more than zero. */

import {
  DataLoader,
  device,
  manualSeed,
  nn,
  noGrad,
  optim,
  rand,
  randn,
  type Tensor,
  TensorDataset,
} from "holdfast";

const longest = 12;

export class Classifier extends nn.Module {
  readonly lstm = new nn.LSTM(2, 24, { batchFirst: true, bidirectional: true });
  readonly head = new nn.Linear(48, 2);

  forward(x: Tensor, lengths: Tensor): Tensor {
    const [, [state]] = this.lstm.forward(x, undefined, { lengths }); // [directions, B, 24]
    return this.head.forward(state.transpose(0, 1).flatten(1));
  }
}

/** Sequences of pairs (number, mark), padded with zeros to the longest; their lengths and classes. */
function makeSequences(numbers: ArrayLike<number>, chances: ArrayLike<number>) {
  const count = numbers.length / longest;
  const values = new Float32Array(count * longest * 2);
  const [lengths, labels] = [new Int32Array(count), new Int32Array(count)];
  for (let row = 0; row < count; row++) {
    const length = 6 + (row % (longest - 5));
    let sum = 0;
    for (let place = 0; place < length; place++) {
      const [at, number] = [row * longest + place, numbers[row * longest + place] ?? 0];
      const isMarked = (chances[at] ?? 0) < 0.4;
      values.set([number, isMarked ? 1 : 0], 2 * at);
      if (isMarked) sum += number;
    }
    lengths[row] = length;
    labels[row] = sum > 0 ? 1 : 0;
  }
  return { inputs: { values, shape: [count, longest, 2] }, lengths, labels };
}

export async function main(epochs = 8): Promise<{ heldOutAccuracy: number }> {
  const cpu = await device("cpu");
  manualSeed(2);
  const draw = (rows: number) =>
    cpu.step(() => makeSequences(randn([rows * longest]).dataSync(), rand([rows * longest]).dataSync()));
  const [train, heldOut] = [draw(1024), draw(256)];
  const model = new Classifier().to(cpu);
  const optimizer = new optim.Adam(model.parameters(), { lr: 1e-2 });

  const step = cpu.compile((x: Tensor, lengths: Tensor, y: Tensor) => {
    const loss = nn.functional.crossEntropy(model.forward(x, lengths), y);
    loss.backward();
    optim.clipGradNorm(model.parameters(), 1);
    optimizer.step();
    optimizer.zeroGrad();
  });
  const data = new TensorDataset(train.inputs, train.lengths, train.labels);
  const batches = new DataLoader(data, { batchSize: 64, shuffle: true });
  for (let epoch = 0; epoch < epochs; epoch++) for (const [x, lengths, y] of batches) step(x, lengths, y);

  model.eval();
  let right = 0;
  const unseen = new TensorDataset(heldOut.inputs, heldOut.lengths, heldOut.labels);
  for (const [x, lengths, y] of new DataLoader(unseen, { batchSize: 64 }))
    right += cpu.step(() => noGrad(() => model.forward(x, lengths).argmax(-1).eq(y).sum().item()));
  cpu.close();
  return { heldOutAccuracy: right / 256 };
}

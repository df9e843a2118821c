/** A GPT with tied weights, a cosine schedule and greedy completion. It learns to reverse four letters: "abdf>fdba". */

import {
  arange,
  type Device,
  device,
  manualSeed,
  nn,
  noGrad,
  optim,
  randint,
  type Tensor,
  tensor,
} from "holdfast";

const letters = 4;
const separator = 10; // after the letters 0 to 9
const width = 32;

class Block extends nn.Module {
  readonly norm1 = new nn.LayerNorm(width);
  readonly attention = new nn.MultiheadAttention(width, 4, { bias: false });
  readonly norm2 = new nn.LayerNorm(width);
  readonly mlp = new nn.Sequential(
    new nn.Linear(width, 4 * width),
    new nn.GELU({ approximate: "tanh" }),
    new nn.Linear(4 * width, width),
  );

  forward(x: Tensor): Tensor {
    const h = x.add(this.attention.forward(this.norm1.forward(x), undefined, undefined, { isCausal: true }));
    return h.add(this.mlp.forward(this.norm2.forward(h)));
  }
}

export class Gpt extends nn.Module {
  readonly tokens = new nn.Embedding(separator + 1, width);
  readonly positions = new nn.Embedding(2 * letters, width);
  readonly blocks = new nn.ModuleList([new Block(), new Block()]);
  readonly norm = new nn.LayerNorm(width);

  forward(ids: Tensor): Tensor {
    const places = arange(ids.size(1), undefined, 1, { device: ids.device });
    let h = this.tokens.forward(ids).add(this.positions.forward(places));
    for (const block of this.blocks) h = block.forward(h);
    return this.norm.forward(h).matmul(this.tokens.weight.t()); // [B, T, letters], with the embedding's weight
  }
}

/** Rows of token ids: random letters, the separator, and the letters reversed. [count, 2 letters + 1] */
function drawRows(cpu: Device, count: number): number[][] {
  const drawn = cpu.step(() => randint(0, 10, [count, letters]).dataSync());
  return Array.from({ length: count }, (_, row) => {
    const word = Array.from(drawn.slice(row * letters, (row + 1) * letters));
    return [...word, separator, ...word.toReversed()];
  });
}

/** Completes rows greedily, one letter at a time. */
function complete(cpu: Device, model: Gpt, prompts: readonly (readonly number[])[]): number[][] {
  const rows = prompts.map((prompt) => [...prompt]);
  for (let made = 0; made < letters; made++) {
    const next = cpu.step(() =>
      noGrad(() =>
        model
          .forward(tensor(rows, { dtype: "i32" }))
          .select(1, -1)
          .argmax(-1)
          .dataSync(),
      ),
    );
    for (const [index, row] of rows.entries()) row.push(next[index] ?? 0);
  }
  return rows;
}

export async function main(steps = 120): Promise<{ solved: number; loss: number }> {
  const cpu = await device("cpu");
  manualSeed(11);
  const model = new Gpt().to(cpu);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 4e-3, weightDecay: 0.01 });
  const schedule = new optim.CosineSchedule(optimizer, { tMax: steps });

  const step = cpu.compile((ids: Tensor) => {
    const logits = model.forward(ids.narrow(1, 0, 2 * letters));
    // Only the letters after the separator can be predicted.
    const loss = nn.functional.crossEntropy(
      logits.narrow(1, letters, letters).reshape([-1, separator + 1]),
      ids.narrow(1, letters + 1, letters).reshape([-1]),
    );
    loss.backward();
    optim.clipGradNorm(model.parameters(), 1);
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });
  let loss = Number.POSITIVE_INFINITY;
  for (let index = 0; index < steps; index++) {
    loss = step(tensor(drawRows(cpu, 48), { dtype: "i32" })).item();
    schedule.step();
  }

  const heldOut = drawRows(cpu, 50);
  const completed = complete(
    cpu,
    model,
    heldOut.map((row) => row.slice(0, letters + 1)),
  );
  const solved =
    completed.filter((row, index) => String(row) === String(heldOut[index])).length / heldOut.length;
  cpu.close();
  return { solved, loss };
}

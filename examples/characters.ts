/** A tiny transformer learns to write sentences letter by letter, from examples of a small grammar. */

import { arange, type Device, device, manualSeed, nn, noGrad, optim, rand, type Tensor } from "holdfast";
import { runIfMain } from "./run-if-main.js";

export interface Result {
  /** The accuracy of the next letter, on sentences outside the training data. */
  readonly heldOutAccuracy: number;
  /** The accuracy of always predicting the most frequent letter. */
  readonly baseline: number;
  readonly sample: string;
}

const words = {
  subject: ["the cat", "a dog", "the old man", "my sister"],
  verb: ["sees", "likes", "follows", "paints"],
  object: ["the moon", "a red boat", "the river", "an apple"],
} as const;

const context = 32;

/** Random whole numbers below a limit. */
function drawNumbers(cpu: Device, count: number, limit: number): number[] {
  return Array.from(
    cpu.step(() => rand([count]).dataSync()),
    (value) => Math.floor(value * limit),
  );
}

/** Random sentences of the grammar. */
function write(cpu: Device, sentences: number): string {
  const picks = drawNumbers(cpu, sentences * 3, 4);
  const pick = (list: readonly string[], index: number): string => list[picks[index] ?? 0] ?? "";
  return Array.from({ length: sentences }, (_, index) => {
    const [subject, verb, object] = [words.subject, words.verb, words.object].map((list, slot) =>
      pick(list, 3 * index + slot),
    );
    return `${subject} ${verb} ${object}. `;
  }).join("");
}

/** Letter and position embeddings, two causal layers, and a linear layer that predicts the next letter. */
export class CharacterModel extends nn.Module {
  readonly letters: nn.Embedding;
  readonly positions: nn.Embedding;
  readonly layers: nn.ModuleList<nn.TransformerEncoderLayer>;
  readonly head: nn.Linear;

  constructor(alphabet: number, width: number) {
    super();
    this.letters = new nn.Embedding(alphabet, width);
    this.positions = new nn.Embedding(context, width);
    const layer = () =>
      new nn.TransformerEncoderLayer(width, 4, {
        dimFeedforward: 4 * width,
        dropout: 0,
        normFirst: true,
        activation: "gelu",
      });
    this.layers = new nn.ModuleList([layer(), layer()]);
    this.head = new nn.Linear(width, alphabet);
  }

  forward(text: Tensor): Tensor {
    const length = text.shape[1] ?? 0;
    let h = this.letters
      .forward(text)
      .add(this.positions.forward(arange(length, undefined, 1, { device: text.device })));
    for (const layer of this.layers) h = layer.forward(h, { isCausal: true });
    return this.head.forward(h); // [B, T, alphabet]
  }
}

export async function main(
  print: (line: string) => void = console.log,
  { steps = 250, letters = 60 } = {},
): Promise<Result> {
  const cpu = await device("cpu", { memory: "512MiB" });
  manualSeed(5);
  const [train, heldOut] = [write(cpu, 400), write(cpu, 60)];
  const alphabet = [...new Set(train)].sort();
  const encode = (text: string): Int32Array => Int32Array.from(text, (letter) => alphabet.indexOf(letter));
  const [trainCodes, heldOutCodes] = [encode(train), encode(heldOut)];

  const model = new CharacterModel(alphabet.length, 32).to(cpu);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 3e-3 });
  const batch = 16;

  /** Windows of the text at these offsets, and the same windows shifted by one letter. */
  const windowsOf = (codes: Int32Array, starts: readonly number[]): [x: Tensor, y: Tensor] => {
    const cut = (shift: number): Int32Array =>
      Int32Array.from(starts.flatMap((start) => [...codes.subarray(start + shift, start + shift + context)]));
    const shape = [starts.length, context];
    return [cpu.fromHost(cut(0), shape, "i32"), cpu.fromHost(cut(1), shape, "i32")];
  };
  const lossOf = (x: Tensor, y: Tensor): Tensor =>
    nn.functional.crossEntropy(model.forward(x).reshape([-1, alphabet.length]), y.reshape([-1]));

  const offsets = drawNumbers(cpu, steps * batch, train.length - context - 1);
  for (let step = 1; step <= steps; step++) {
    const starts = offsets.slice((step - 1) * batch, step * batch);
    cpu.step(() => {
      const [x, y] = windowsOf(trainCodes, starts);
      const loss = lossOf(x, y);
      loss.backward();
      optim.clipGradNorm(model.parameters(), 1);
      optimizer.step();
      optimizer.zeroGrad();
      if (step % 50 === 0) print(`step ${step}: loss ${loss.item().toFixed(4)}`);
    });
  }

  const starts = Array.from(
    { length: Math.floor((heldOut.length - 1) / context) },
    (_, index) => index * context,
  );
  const heldOutAccuracy = cpu.step(() =>
    noGrad(() => {
      const [x, y] = windowsOf(heldOutCodes, starts);
      return model.forward(x).argmax(-1).eq(y).to("f32").mean().item();
    }),
  );
  const counts = alphabet.map((letter) => heldOut.split(letter).length - 1);
  const baseline = Math.max(...counts) / heldOut.length;

  let sample = "the ";
  for (let letter = 0; letter < letters; letter++) {
    sample += cpu.step(() =>
      noGrad(() => {
        const codes = encode(sample.slice(-context));
        const logits = model.forward(cpu.fromHost(codes, [1, codes.length], "i32"));
        return (
          alphabet[
            logits
              .select(1, codes.length - 1)
              .argmax(-1)
              .item()
          ] ?? ""
        );
      }),
    );
  }
  print(
    `held-out accuracy ${(100 * heldOutAccuracy).toFixed(1)} % (most frequent letter: ${(100 * baseline).toFixed(1)} %)`,
  );
  print(`it writes: ${sample}`);
  cpu.close();
  return { heldOutAccuracy, baseline, sample };
}

await runIfMain(import.meta.url, main);

/**
 * A GPT learns to write like Jane Austen, letter by letter: nanoGPT's character model, with 10.8 million parameters, in bf16 on a GPU.
 * With `--small`, a smaller one learns on the CPU in about a minute.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { brotliDecompressSync } from "node:zlib";
import { arange, type Device, device, manualSeed, nn, noGrad, optim, rand, type Tensor } from "holdfast";
import { runIfMain } from "./run-if-main.js";

export interface Result {
  /** The loss before the first and after the last step on the held-out tenth of the text, in nats per letter. */
  readonly firstLoss: number;
  readonly heldOutLoss: number;
  readonly sample: string;
}

export interface Preset {
  readonly device: "cpu" | "cuda";
  readonly precision: "f32" | "bf16";
  readonly layers: number;
  readonly heads: number;
  readonly width: number;
  readonly context: number;
  readonly batch: number;
  readonly dropout: number;
  readonly lr: number;
  readonly steps: number;
  readonly warmup: number;
  /** Steps between two evaluations, and the windows of an evaluation. */
  readonly evaluateEvery: number;
  readonly heldOutWindows: number;
  readonly letters: number;
}

/** nanoGPT's `train_shakespeare_char.py`. */
const full: Preset = {
  ...{ device: "cuda", precision: "bf16" },
  ...{ layers: 6, heads: 6, width: 384, context: 256, batch: 64, dropout: 0.2 },
  ...{ lr: 1e-3, steps: 5000, warmup: 100, evaluateEvery: 500, heldOutWindows: 448, letters: 400 },
};

export const small: Preset = {
  ...{ device: "cpu", precision: "f32" },
  ...{ layers: 3, heads: 4, width: 64, context: 64, batch: 16, dropout: 0 },
  ...{ lr: 4e-3, steps: 500, warmup: 30, evaluateEvery: 100, heldOutWindows: 64, letters: 200 },
};

/** Letter and position embeddings, causal layers, and a linear layer that predicts the next letter. */
export class CharGpt extends nn.Module {
  readonly letters: nn.Embedding;
  readonly positions: nn.Embedding;
  readonly dropout: nn.Dropout;
  readonly layers: nn.ModuleList<nn.TransformerEncoderLayer>;
  readonly norm: nn.LayerNorm;
  readonly head: nn.Linear;

  constructor(alphabet: number, { layers, heads, width, context, dropout }: Preset) {
    super();
    this.letters = new nn.Embedding(alphabet, width);
    this.positions = new nn.Embedding(context, width);
    this.dropout = new nn.Dropout(dropout);
    const options = { dimFeedforward: 4 * width, dropout, normFirst: true, activation: "gelu" } as const;
    this.layers = new nn.ModuleList(
      Array.from({ length: layers }, () => new nn.TransformerEncoderLayer(width, heads, options)),
    );
    this.norm = new nn.LayerNorm(width);
    this.head = new nn.Linear(width, alphabet, { bias: false });
    for (const table of [this.letters, this.positions])
      table.weight = new nn.Parameter(table.weight.shape, nn.init.normal(0, 0.02));
  }

  forward(text: Tensor): Tensor {
    const length = text.shape[1] ?? 0;
    const positions = arange(length, undefined, 1, { device: text.device });
    let h = this.dropout.forward(this.letters.forward(text).add(this.positions.forward(positions))); // [B, T, width]
    for (const layer of this.layers) h = layer.forward(h, { isCausal: true });
    return this.head.forward(this.norm.forward(h)); // [B, T, alphabet]
  }
}

/** Jane Austen's Persuasion and Pride and Prejudice; see data/README.md. */
function readText(): string {
  // From the source and from the compiled program.
  const folders = [import.meta.dirname, join(import.meta.dirname, "../../examples")];
  for (const folder of folders) {
    try {
      return brotliDecompressSync(readFileSync(join(folder, "data/austen.txt.br"))).toString();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT" || folder === folders.at(-1)) throw error;
    }
  }
  return "";
}

/** Random numbers from 0 to 1. */
function drawNumbers(target: Device, count: number): Float32Array {
  return target.step(() => rand([count], { device: target }).dataSync()) as Float32Array;
}

export async function main(
  print: (line: string) => void = console.log,
  preset: Preset = process.argv.includes("--small") ? small : full,
): Promise<Result> {
  const { batch, context, steps, warmup, lr, precision } = preset;
  const target = await device(preset.device, { precision });
  manualSeed(1337);
  const text = readText();
  const alphabet = [...new Set(text)].sort();
  const codeOf = new Map(alphabet.map((letter, code) => [letter, code]));
  const codes = Int32Array.from(text, (letter) => codeOf.get(letter) ?? 0);
  const heldOutStart = Math.floor(0.9 * codes.length);
  const [trainCodes, heldOutCodes] = [codes.subarray(0, heldOutStart), codes.subarray(heldOutStart)];

  const model = new CharGpt(alphabet.length, preset).to(target);
  const parameters = model.parameters();
  const optimizer = new optim.AdamW(parameters, { lr, betas: [0.9, 0.99], weightDecay: 0.1 });
  const cosine = new optim.CosineSchedule(optimizer, { tMax: steps - warmup, etaMin: lr / 10 });
  const schedule = new optim.WarmupSchedule(optimizer, { steps: warmup, startFactor: 0.01, after: cosine });

  /** Windows of a text at these offsets, and the same windows shifted by one letter. */
  const windowsOf = (of: Int32Array, starts: ArrayLike<number>): [x: Tensor, y: Tensor] => {
    const windows = [0, 1].map((shift) => {
      const cut = new Int32Array(starts.length * context);
      for (let row = 0; row < starts.length; row++) {
        const start = (starts[row] ?? 0) + shift;
        cut.set(of.subarray(start, start + context), row * context);
      }
      return target.fromHost(cut, [starts.length, context], "i32");
    });
    return windows as [Tensor, Tensor];
  };
  const lossOf = (x: Tensor, y: Tensor): Tensor =>
    nn.functional.crossEntropy(model.forward(x).reshape([-1, alphabet.length]), y.reshape([-1]));
  const train = target.compile((x: Tensor, y: Tensor) => {
    const loss = lossOf(x, y);
    loss.backward();
    optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  });
  const evaluate = target.compile((x: Tensor, y: Tensor) => noGrad(() => lossOf(x, y)));

  /** The mean loss over windows that cover the held-out text evenly. */
  const heldOutLossOf = (): number => {
    model.eval();
    const windows = Math.min(preset.heldOutWindows, Math.floor((heldOutCodes.length - 1) / context));
    const gap = Math.floor((heldOutCodes.length - context - 1) / windows);
    let sum = 0;
    for (let first = 0; first < windows; first += batch) {
      const starts = Array.from(
        { length: Math.min(batch, windows - first) },
        (_, row) => (first + row) * gap,
      );
      sum += starts.length * target.step(() => evaluate(...windowsOf(heldOutCodes, starts)).item());
    }
    model.train();
    return sum / windows;
  };

  const firstLoss = heldOutLossOf();
  let heldOutLoss = firstLoss;
  print(
    `${alphabet.length} letters, ${codes.length} in the text; held-out loss ${firstLoss.toFixed(4)} before the first step`,
  );
  const startedAt = performance.now();
  const limit = trainCodes.length - context - 1;
  for (let step = 1; step <= steps; step++) {
    const starts = drawNumbers(target, batch).map((value) => Math.floor(value * limit));
    const loss = target.step(() => {
      const result = train(...windowsOf(trainCodes, starts));
      return step % preset.evaluateEvery === 0 || step === steps ? result.loss.item() : Number.NaN;
    });
    schedule.step();
    if (Number.isNaN(loss)) continue;
    heldOutLoss = heldOutLossOf();
    const seconds = (performance.now() - startedAt) / 1000;
    print(
      `step ${step}: loss ${loss.toFixed(4)}, held-out loss ${heldOutLoss.toFixed(4)}, ${seconds.toFixed(1)} s`,
    );
  }

  const sample = writeText(target, model, alphabet, preset);
  print(`it writes:\n${sample}`);
  target.close();
  return { firstLoss, heldOutLoss, sample };
}

/** Letters drawn one by one from the model's distribution, at temperature 0.8. */
function writeText(target: Device, model: CharGpt, alphabet: readonly string[], preset: Preset): string {
  const { letters, context } = preset;
  model.eval();
  const written = [alphabet.indexOf("\n")];
  for (const draw of drawNumbers(target, letters)) {
    const logits = target.step(() =>
      noGrad(() => {
        const codes = Int32Array.from(written.slice(-context));
        const all = model.forward(target.fromHost(codes, [1, codes.length], "i32"));
        return all.select(1, codes.length - 1).dataSync() as Float32Array;
      }),
    );
    written.push(drawFrom(logits, draw));
  }
  return written
    .slice(1)
    .map((code) => alphabet[code] ?? "")
    .join("");
}

function drawFrom(logits: Float32Array, draw: number): number {
  const temperature = 0.8;
  const max = Math.max(...logits);
  const weights = Array.from(logits, (logit) => Math.exp((logit - max) / temperature));
  let left = draw * weights.reduce((sum, weight) => sum + weight, 0);
  return Math.max(
    0,
    weights.findIndex((weight) => {
      left -= weight;
      return left < 0;
    }),
  );
}

await runIfMain(import.meta.url, main);

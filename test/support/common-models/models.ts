/** Models that users train most, written with the public API alone: a GPT, an MLP, a convnet, a GRU and a recommender. */

import { cat, nn, type Tensor, zeros } from "holdfast";

const { functional } = nn;

export interface GptSizes {
  readonly vocabulary: number;
  readonly context: number;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly dropout: number;
  readonly bias: boolean;
  readonly gelu: "none" | "tanh";
}

/** A pre-norm transformer block whose query, key and value are slices of one projection. */
class Block extends nn.Module {
  readonly norm1: nn.LayerNorm;
  readonly qkv: nn.Linear;
  readonly projection: nn.Linear;
  readonly norm2: nn.LayerNorm;
  readonly up: nn.Linear;
  readonly down: nn.Linear;
  readonly #sizes: GptSizes;

  constructor(sizes: GptSizes) {
    super();
    const { width, bias } = sizes;
    this.#sizes = sizes;
    this.norm1 = new nn.LayerNorm(width, { bias });
    this.qkv = new nn.Linear(width, 3 * width, { bias });
    this.projection = new nn.Linear(width, width, { bias });
    this.norm2 = new nn.LayerNorm(width, { bias });
    this.up = new nn.Linear(width, 4 * width, { bias });
    this.down = new nn.Linear(4 * width, width, { bias });
  }

  forward(x: Tensor): Tensor {
    const { heads, width, dropout, gelu } = this.#sizes;
    const [batch = 1, rows = 1] = x.shape;
    const drop = (value: Tensor): Tensor =>
      dropout > 0 ? functional.dropout(value, dropout, this.isTraining) : value;
    const qkv = this.qkv.forward(this.norm1.forward(x)).reshape([batch, rows, 3, heads, width / heads]);
    const [q, k, v] = [qkv.select(2, 0), qkv.select(2, 1), qkv.select(2, 2)]; // [B, T, H, d / H]
    const options = { isCausal: true, dropoutP: this.isTraining ? dropout : 0, rowsFirst: true };
    const attended = functional.scaledDotProductAttention(q, k, v, null, options);
    const h = x.add(drop(this.projection.forward(attended.reshape([batch, rows, width]))));
    return h.add(drop(this.down.forward(this.up.forward(this.norm2.forward(h)).gelu(gelu))));
  }
}

/** A GPT whose head is its embedding table. */
export class Gpt extends nn.Module {
  readonly words: nn.Embedding;
  readonly places: nn.Parameter;
  readonly blocks: nn.ModuleList<Block>;
  readonly norm: nn.LayerNorm;
  readonly #dropout: number;

  constructor(sizes: GptSizes) {
    super();
    const { vocabulary, context, width, layers, bias, dropout } = sizes;
    this.#dropout = dropout;
    this.words = new nn.Embedding(vocabulary, width);
    this.places = new nn.Parameter([context, width], nn.init.zeros());
    this.blocks = new nn.ModuleList(Array.from({ length: layers }, () => new Block(sizes)));
    this.norm = new nn.LayerNorm(width, { bias });
  }

  forward(text: Tensor): Tensor {
    let h = this.words.forward(text).add(this.places); // [B, T, d]
    if (this.#dropout > 0) h = functional.dropout(h, this.#dropout, this.isTraining);
    for (const block of this.blocks) h = block.forward(h);
    return functional.linear(this.norm.forward(h), this.words.weight); // [B, T, vocabulary]
  }
}

/** Linear layers with ReLUs between them. */
export class Mlp extends nn.Module {
  readonly layers: nn.ModuleList<nn.Linear>;

  constructor(sizes: readonly number[]) {
    super();
    this.layers = new nn.ModuleList(
      sizes.slice(1).map((size, index) => new nn.Linear(sizes[index] ?? 1, size)),
    );
  }

  forward(x: Tensor): Tensor {
    const [first, ...others] = [...this.layers];
    let h = first?.forward(x) ?? x;
    for (const layer of others) h = layer.forward(h.relu());
    return h;
  }
}

/** 3 × 3 convolutions with ReLUs, and max pools between them; the means of the last images go to a linear layer. */
export class Convnet extends nn.Module {
  readonly convolutions: nn.ModuleList<nn.Conv2d>;
  readonly head: nn.Linear;

  constructor(channels: readonly number[], classes: number) {
    super();
    this.convolutions = new nn.ModuleList(
      channels.slice(1).map((count, index) => new nn.Conv2d(channels[index] ?? 1, count, 3, { padding: 1 })),
    );
    this.head = new nn.Linear(channels.at(-1) ?? 1, classes);
  }

  forward(images: Tensor): Tensor {
    let h = images; // [B, C, H, W]
    for (const [index, convolution] of [...this.convolutions].entries()) {
      if (index > 0) h = functional.maxPool2d(h, 2);
      h = convolution.forward(h).relu();
    }
    return this.head.forward(h.mean([2, 3]));
  }
}

/** A GRU that is unrolled by hand. */
export class Gru extends nn.Module {
  readonly ofInput: nn.Linear;
  readonly ofState: nn.Linear;
  readonly head: nn.Linear;
  readonly #width: number;

  constructor({ features, width, classes }: Readonly<Record<"features" | "width" | "classes", number>>) {
    super();
    this.#width = width;
    this.ofInput = new nn.Linear(features, 3 * width);
    this.ofState = new nn.Linear(width, 3 * width);
    this.head = new nn.Linear(width, classes);
  }

  forward(x: Tensor): Tensor {
    const [batch = 1, rows = 1] = x.shape;
    let h = zeros([batch, this.#width], { device: x.device, dtype: x.dtype });
    for (let row = 0; row < rows; row++) {
      const [xr, xz, xn] = thirds(this.ofInput.forward(x.select(1, row)));
      const [hr, hz, hn] = thirds(this.ofState.forward(h));
      const reset = xr.add(hr).sigmoid();
      const update = xz.add(hz).sigmoid();
      const next = xn.add(reset.mul(hn)).tanh();
      h = next.add(update.mul(h.sub(next)));
    }
    return this.head.forward(h);
  }
}

function thirds(value: Tensor): readonly [Tensor, Tensor, Tensor] {
  return value.chunk(3, -1) as [Tensor, Tensor, Tensor];
}

/** Embeddings of several ids, joined, in a small MLP with one output. */
export class Recommender extends nn.Module {
  readonly tables: nn.ModuleList<nn.Embedding>;
  readonly hidden: nn.Linear;
  readonly head: nn.Linear;

  constructor(tables: number, entries: number, embedding: number, hidden: number) {
    super();
    this.tables = new nn.ModuleList(
      Array.from({ length: tables }, () => new nn.Embedding(entries, embedding)),
    );
    this.hidden = new nn.Linear(tables * embedding, hidden);
    this.head = new nn.Linear(hidden, 1);
  }

  forward(ids: Tensor): Tensor {
    const rows = [...this.tables].map((table, index) => table.forward(ids.select(1, index)));
    return this.head.forward(this.hidden.forward(cat(rows, 1)).relu()); // [B, 1]
  }
}

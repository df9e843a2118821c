/**
 * The CrossAsset model: a small attention model over several time scales of one market. For each scale it predicts long, short or
 * flat. Weights are [in, out]; every scale has its own input projection, the layers are shared.
 */

import { HoldfastError } from "../errors/index.js";
import { functional, init, LayerNorm, Module, ModuleList, Parameter } from "../nn/index.js";
import type { Tensor } from "../tensor/index.js";

/** The sizes of a CrossAsset model. */
export interface CrossAssetOptions {
  /** S: the number of time scales. */
  readonly sources?: number;
  /** F: features per scale. */
  readonly features?: number;
  /** d: the model's width. */
  readonly width?: number;
  /** H: the number of heads. */
  readonly heads?: number;
  readonly layers?: number;
  /** The width of the feed-forward layer; default: 4d. */
  readonly hidden?: number;
  readonly classes?: number;
  readonly dropout?: number;
  /** Normalise queries and keys to length 1. */
  readonly qkNorm?: boolean;
}

const defaults = {
  sources: 12,
  features: 193,
  width: 256,
  heads: 4,
  layers: 2,
  classes: 3,
  dropout: 0,
  qkNorm: false,
} as const satisfies CrossAssetOptions;

/** x·W + b with W [in, out]; matrices start as N(0, 2/in), biases as 0. */
class Projection extends Module {
  readonly weight: Parameter;
  readonly bias: Parameter;

  constructor(inputs: number, outputs: number) {
    super();
    this.weight = new Parameter([inputs, outputs], init.normal(0, Math.sqrt(2 / inputs)));
    this.bias = new Parameter([outputs], init.zeros());
  }

  forward(x: Tensor): Tensor {
    return functional.linear(x, this.weight, this.bias, { layout: "inOut" });
  }
}

interface LayerSizes {
  readonly width: number;
  readonly heads: number;
  readonly hidden: number;
  readonly dropout: number;
  readonly qkNorm: boolean;
}

/** Attention over the scales, then a feed-forward layer; each with a residual connection and layer norm. */
class Layer extends Module {
  readonly q: Parameter; // [d, d]
  readonly k: Parameter; // [d, d]
  readonly v: Parameter; // [d, d]
  readonly o: Parameter; // [d, d]
  readonly norm1: LayerNorm;
  readonly ffn1: Projection;
  readonly ffn2: Projection;
  readonly norm2: LayerNorm;
  readonly #sizes: LayerSizes;

  constructor(sizes: LayerSizes) {
    super();
    const { width, hidden } = sizes;
    const square = (): Parameter => new Parameter([width, width], init.normal(0, Math.sqrt(2 / width)));
    this.#sizes = sizes;
    this.q = square();
    this.k = square();
    this.v = square();
    this.o = square();
    this.norm1 = new LayerNorm(width);
    this.ffn1 = new Projection(width, hidden);
    this.ffn2 = new Projection(hidden, width);
    this.norm2 = new LayerNorm(width);
  }

  forward(h: Tensor): Tensor {
    const { dropout } = this.#sizes;
    const drop = (x: Tensor): Tensor => functional.dropout(x, dropout, this.isTraining);
    const n = this.norm1.forward(h.add(drop(this.#attend(h)))); // [B, S, d]
    const inner = this.ffn1.forward(n).gelu("tanh"); // [B, S, hidden]
    return this.norm2.forward(n.add(drop(this.ffn2.forward(inner))));
  }

  #attend(h: Tensor): Tensor {
    const { heads, width, qkNorm } = this.#sizes;
    const [batch = 1, sources = 1] = h.shape;
    const headWidth = width / heads;
    if (!qkNorm) {
      const packed = functional
        .fusedProjections(h, [this.q, this.k, this.v])
        .reshape([batch, sources, 3, heads, headWidth]);
      return functional.packedAttention(packed).reshape([batch, sources, width]).matmul(this.o);
    }
    const split = (weight: Parameter): Tensor => h.matmul(weight).reshape([batch, sources, heads, headWidth]); // [B, S, H, d/H]
    const unit = (x: Tensor): Tensor => x.mul(x.square().sum(-1, { keepdim: true }).add(1e-12).rsqrt());
    const [q, k, v] = [unit(split(this.q)), unit(split(this.k)), split(this.v)];
    const attended = functional.scaledDotProductAttention(q, k, v, null, {
      scale: Math.sqrt(headWidth),
      rowsFirst: true,
    });
    return attended.reshape([batch, sources, width]).matmul(this.o);
  }
}

/**
 * The model: x [B, S, F] to logits [B, S, C].
 *
 * @example
 * ```ts
 * import { crossasset, device, manualSeed, randn } from "holdfast";
 * const cpu = await device("cpu");
 * manualSeed(42);
 * const model = new crossasset.CrossAsset().to(cpu);
 * console.log(model.parameters().length, model.parameterCount); // → 50 2174211
 * console.log(model.forward(randn([2, 12, 193])).shape); // → [ 2, 12, 3 ]
 * cpu.close();
 * ```
 */
export class CrossAsset extends Module {
  readonly input: ModuleList<Projection>;
  readonly layers: ModuleList<Layer>;
  readonly head: Projection;

  constructor(options: CrossAssetOptions = {}) {
    super();
    const sizes = { ...defaults, ...options };
    const { sources, features, width, heads, layers, classes, dropout, qkNorm, hidden = 4 * width } = sizes;
    if (width % heads !== 0) {
      throw new HoldfastError("BAD_SHAPE", `CrossAsset: width ${width} is not divisible by ${heads} heads.`);
    }
    const times = <T>(count: number, make: () => T): T[] => Array.from({ length: count }, make);
    this.input = new ModuleList(times(sources, () => new Projection(features, width)));
    this.layers = new ModuleList(times(layers, () => new Layer({ width, heads, hidden, dropout, qkNorm })));
    this.head = new Projection(width, classes);
  }

  /** Features [B, S, F] to logits [B, S, C]. */
  forward(x: Tensor): Tensor {
    const inputs = [...this.input];
    let h = functional.batchedLinear(
      x,
      inputs.map(({ weight }) => weight),
      inputs.map(({ bias }) => bias),
    ); // [B, S, d]
    for (const layer of this.layers) h = layer.forward(h);
    return this.head.forward(h); // [B, S, C]
  }
}

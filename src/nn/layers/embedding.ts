/** Embedding: a learned row for each index. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { formatShape } from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";
import {
  type EmbeddingBagOptions,
  type EmbeddingFunctionOptions,
  embedding,
  embeddingBag,
} from "../functional.js";
import { normal, normalWithPadding } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireSizes } from "./checks.js";

/** Options of an `Embedding` layer. The row `paddingIdx` also starts as zeros. */
export type EmbeddingOptions = EmbeddingFunctionOptions;

/**
 * A row of the weight for each index of an i32 tensor.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const words = new nn.Embedding(10, 4, { paddingIdx: 0 }).to(cpu);
 * const y = words.forward(tensor([[3, 7, 0]], { dtype: "i32" }));
 * console.log(y.shape, y.select(1, 2).tolist()); // → [ 1, 3, 4 ] [ [ 0, 0, 0, 0 ] ]
 * cpu.close();
 * ```
 */
export class Embedding extends Module {
  readonly numEmbeddings: number;
  readonly embeddingDim: number;
  /** From 0 on, also if the option counts from the end. */
  readonly paddingIdx: number | undefined;
  readonly maxNorm: number | undefined;
  readonly normType: number;
  /** [numEmbeddings, embeddingDim]. Assign another layer's weight to tie the two. */
  weight: Parameter;

  constructor(numEmbeddings: number, embeddingDim: number, options: EmbeddingOptions = {}) {
    const {
      paddingIdx: place,
      maxNorm,
      normType = 2,
    } = checkOptions("nn.Embedding", options, { paddingIdx: true, maxNorm: true, normType: true });
    super();
    requireSizes("Embedding", { numEmbeddings, embeddingDim });
    const paddingIdx = place !== undefined && place < 0 ? place + numEmbeddings : place;
    if (
      paddingIdx !== undefined &&
      !(Number.isInteger(paddingIdx) && paddingIdx >= 0 && paddingIdx < numEmbeddings)
    ) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `Embedding: paddingIdx is ${place}; it must be a row from ${-numEmbeddings} to ${numEmbeddings - 1}.`,
        { numbers: { paddingIdx, numEmbeddings } },
      );
    }
    requireNorm("Embedding", maxNorm, normType);
    this.numEmbeddings = numEmbeddings;
    this.embeddingDim = embeddingDim;
    this.paddingIdx = paddingIdx;
    this.maxNorm = maxNorm;
    this.normType = normType;
    this.weight = new Parameter(
      [numEmbeddings, embeddingDim],
      paddingIdx === undefined ? normal() : normalWithPadding(paddingIdx),
    );
  }

  /**
   * A layer with the rows of a tensor, on its device. By default it is frozen.
   *
   * @example
   * ```ts
   * import { device, nn, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const words = nn.Embedding.fromPretrained(tensor([[1, 2], [3, 4]]));
   * console.log(words.forward(tensor([1], { dtype: "i32" })).tolist(), words.weight.requiresGrad); // → [ [ 3, 4 ] ] false
   * cpu.close();
   * ```
   */
  static fromPretrained(
    embeddings: Tensor,
    options: EmbeddingOptions & { readonly freeze?: boolean } = {},
  ): Embedding {
    const { freeze = true, ...others } = options;
    const [rows = 0, columns = 0] = embeddings.shape;
    if (embeddings.ndim !== 2) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `Embedding.fromPretrained: the rows are ${formatShape(embeddings.shape)}; pass a matrix [numEmbeddings, embeddingDim].`,
      );
    }
    const layer = new Embedding(rows, columns, others);
    const values = Float64Array.from(embeddings.to("f64").dataSync());
    layer.weight = new Parameter([rows, columns], () => values, {
      dtype: embeddings.dtype,
      requiresGrad: !freeze,
    });
    return layer.to(embeddings.device);
  }

  /** Indices [...] to their rows [..., embeddingDim]. */
  forward(index: Tensor): Tensor {
    const { paddingIdx, maxNorm, normType } = this;
    return embedding(index, this.weight, {
      ...(paddingIdx !== undefined && { paddingIdx }),
      ...(maxNorm !== undefined && { maxNorm, normType }),
    });
  }

  protected override describe(): string {
    const { paddingIdx, maxNorm, normType } = this;
    const padding = paddingIdx === undefined ? "" : `, paddingIdx=${paddingIdx}`;
    const norm = maxNorm === undefined ? "" : `, maxNorm=${maxNorm}`;
    const type = normType === 2 ? "" : `, normType=${normType}`;
    return `${this.numEmbeddings}, ${this.embeddingDim}${padding}${norm}${type}`;
  }
}

function requireNorm(layer: string, maxNorm: number | undefined, normType: number): void {
  if ((maxNorm === undefined || maxNorm >= 0) && normType > 0) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${layer}: maxNorm is ${maxNorm ?? "not set"} and normType ${normType}. Pass a maxNorm of 0 or more and a normType above 0.`,
    { numbers: { maxNorm: maxNorm ?? null, normType } },
  );
}

/** Options of an `EmbeddingBag` layer. */
export type EmbeddingBagLayerOptions = Pick<EmbeddingBagOptions, "mode" | "maxNorm" | "normType">;

/**
 * The sum, mean or maximum of the weight's rows for each bag of indices; see `nn.functional.embeddingBag`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const bags = new nn.EmbeddingBag(10, 4, { mode: "sum" }).to(cpu);
 * console.log(bags.forward(tensor([[3, 7, 0]], { dtype: "i32" })).shape); // → [ 1, 4 ]
 * cpu.close();
 * ```
 */
export class EmbeddingBag extends Module {
  readonly numEmbeddings: number;
  readonly embeddingDim: number;
  readonly mode: "sum" | "mean" | "max";
  readonly maxNorm: number | undefined;
  readonly normType: number;
  /** [numEmbeddings, embeddingDim] */
  weight: Parameter;

  constructor(numEmbeddings: number, embeddingDim: number, options: EmbeddingBagLayerOptions = {}) {
    const {
      mode = "mean",
      maxNorm,
      normType = 2,
    } = checkOptions("nn.EmbeddingBag", options, { mode: true, maxNorm: true, normType: true });
    super();
    requireSizes("EmbeddingBag", { numEmbeddings, embeddingDim });
    requireNorm("EmbeddingBag", maxNorm, normType);
    this.maxNorm = maxNorm;
    this.normType = normType;
    this.numEmbeddings = numEmbeddings;
    this.embeddingDim = embeddingDim;
    this.mode = mode;
    this.weight = new Parameter([numEmbeddings, embeddingDim], normal());
  }

  /** Indices [bags, n], or [n] with offsets, to [bags, embeddingDim]. */
  forward(input: Tensor, options: Pick<EmbeddingBagOptions, "offsets" | "perSampleWeights"> = {}): Tensor {
    checkOptions("nn.EmbeddingBag.forward", options, { offsets: true, perSampleWeights: true });
    const { mode, maxNorm, normType } = this;
    const limit = maxNorm === undefined ? {} : { maxNorm, normType };
    return embeddingBag(input, this.weight, { ...options, mode, ...limit });
  }

  protected override describe(): string {
    const norm = this.maxNorm === undefined ? "" : `, maxNorm=${this.maxNorm}`;
    return `${this.numEmbeddings}, ${this.embeddingDim}, mode=${this.mode}${norm}`;
  }
}

/** TransformerEncoder, TransformerDecoder and Transformer: stacks of layers. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import { full, type Tensor, type TensorOptions } from "../../tensor/index.js";
import { xavierUniform } from "../init.js";
import { Module } from "../module.js";
import type { AttendOptions } from "./attention.js";
import { attendOptionNames } from "./attention.js";
import { requireSizes } from "./checks.js";
import { ModuleList } from "./containers.js";
import { LayerNorm } from "./normalisation.js";
import { TransformerEncoderLayer, type TransformerEncoderLayerOptions } from "./transformer.js";
import { type DecodeOptions, decodeOptionNames, TransformerDecoderLayer } from "./transformer-decoder.js";

/** Options of `TransformerEncoder` and `TransformerDecoder`. */
export interface TransformerStackOptions {
  /** Applied to the result of the last layer. Default: none. */
  readonly norm?: LayerNorm | null;
}

const transformerStackOptionNames: OptionNames<TransformerStackOptions> = { norm: true };

/**
 * Encoder layers in sequence. The function makes each layer. (PyTorch copies a layer instead.)
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const encoder = new nn.TransformerEncoder(() => new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16 }), 2).to(cpu);
 * console.log(encoder.forward(randn([4, 5, 8])).shape, encoder.layers.length); // → [ 4, 5, 8 ] 2
 * cpu.close();
 * ```
 */
export class TransformerEncoder extends Module {
  readonly layers: ModuleList<TransformerEncoderLayer>;
  readonly norm: LayerNorm | null;

  constructor(
    makeLayer: () => TransformerEncoderLayer,
    numLayers: number,
    options: TransformerStackOptions = {},
  ) {
    const { norm = null } = checkOptions("nn.TransformerEncoder", options, transformerStackOptionNames);
    super();
    requireSizes("TransformerEncoder", { numLayers });
    this.layers = new ModuleList(Array.from({ length: numLayers }, makeLayer));
    this.norm = norm;
  }

  /** [batch, rows, width] to the same shape; the options are passed to every layer. */
  forward(src: Tensor, options: AttendOptions = {}): Tensor {
    checkOptions("nn.TransformerEncoder.forward", options, attendOptionNames);
    const encoded = [...this.layers].reduce((x, layer) => layer.forward(x, options), src);
    return this.norm ? this.norm.forward(encoded) : encoded;
  }
}

/**
 * Decoder layers in sequence. The function makes each layer. (PyTorch copies a layer instead.)
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const decoder = new nn.TransformerDecoder(() => new nn.TransformerDecoderLayer(8, 2, { dimFeedforward: 16 }), 2).to(cpu);
 * console.log(decoder.forward(randn([4, 5, 8]), randn([4, 7, 8])).shape); // → [ 4, 5, 8 ]
 * cpu.close();
 * ```
 */
export class TransformerDecoder extends Module {
  readonly layers: ModuleList<TransformerDecoderLayer>;
  readonly norm: LayerNorm | null;

  constructor(
    makeLayer: () => TransformerDecoderLayer,
    numLayers: number,
    options: TransformerStackOptions = {},
  ) {
    const { norm = null } = checkOptions("nn.TransformerDecoder", options, transformerStackOptionNames);
    super();
    requireSizes("TransformerDecoder", { numLayers });
    this.layers = new ModuleList(Array.from({ length: numLayers }, makeLayer));
    this.norm = norm;
  }

  /** A target [batch, rows, width] and a memory [batch, columns, width] to the target's shape. */
  forward(tgt: Tensor, memory: Tensor, options: DecodeOptions = {}): Tensor {
    checkOptions("nn.TransformerDecoder.forward", options, decodeOptionNames);
    const decoded = [...this.layers].reduce((x, layer) => layer.forward(x, memory, options), tgt);
    return this.norm ? this.norm.forward(decoded) : decoded;
  }
}

/** Options of a `Transformer`. */
export interface TransformerOptions extends TransformerEncoderLayerOptions {
  /** Default: 8. */
  readonly heads?: number;
  /** Default: 6. */
  readonly numEncoderLayers?: number;
  /** Default: 6. */
  readonly numDecoderLayers?: number;
}

/** Masks of a `Transformer`; see the options of `MultiheadAttention`. */
export interface TransformOptions extends DecodeOptions {
  readonly srcMask?: Tensor | null;
  readonly srcKeyPaddingMask?: Tensor | null;
  readonly srcIsCausal?: boolean;
}

/**
 * An encoder and a decoder, each with a norm at its end. The decoder attends to the encoder's result.
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { heads: 2, numEncoderLayers: 1, numDecoderLayers: 1, dimFeedforward: 16 };
 * const model = new nn.Transformer(8, sizes).to(cpu);
 * console.log(model.forward(randn([4, 7, 8]), randn([4, 5, 8]), { tgtIsCausal: true }).shape); // → [ 4, 5, 8 ]
 * cpu.close();
 * ```
 */
export class Transformer extends Module {
  /**
   * A float mask [size, size], to be added to scores: −Infinity at the columns after that of the row, and 0 elsewhere. The option `isCausal` has the
   * same effect, without a mask in memory.
   *
   * @example
   * ```ts
   * import { device, nn } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(nn.Transformer.generateSquareSubsequentMask(2).tolist()); // → [ [ 0, -Infinity ], [ 0, 0 ] ]
   * cpu.close();
   * ```
   */
  static generateSquareSubsequentMask(size: number, options: TensorOptions = {}): Tensor {
    return full([size, size], Number.NEGATIVE_INFINITY, options).triu(1);
  }

  readonly encoder: TransformerEncoder;
  readonly decoder: TransformerDecoder;

  constructor(dModel = 512, given: TransformerOptions = {}) {
    const {
      heads = 8,
      numEncoderLayers = 6,
      numDecoderLayers = 6,
      ...options
    } = checkOptions("nn.Transformer", given, {
      heads: true,
      numEncoderLayers: true,
      numDecoderLayers: true,
      dimFeedforward: true,
      dropout: true,
      activation: true,
      normFirst: true,
      layerNormEps: true,
      bias: true,
      batchFirst: true,
    });
    super();
    const norm = (): LayerNorm =>
      new LayerNorm(dModel, { eps: options.layerNormEps ?? 1e-5, bias: options.bias ?? true });
    const makeEncoderLayer = (): TransformerEncoderLayer =>
      new TransformerEncoderLayer(dModel, heads, options);
    const makeDecoderLayer = (): TransformerDecoderLayer =>
      new TransformerDecoderLayer(dModel, heads, options);
    this.encoder = new TransformerEncoder(makeEncoderLayer, numEncoderLayers, { norm: norm() });
    this.decoder = new TransformerDecoder(makeDecoderLayer, numDecoderLayers, { norm: norm() });
    for (const parameter of this.parameters()) if (parameter.ndim > 1) parameter.initialize(xavierUniform());
  }

  /** A source [batch, columns, width] and a target [batch, rows, width] to the target's shape. */
  forward(src: Tensor, tgt: Tensor, options: TransformOptions = {}): Tensor {
    checkOptions("nn.Transformer.forward", options, {
      srcMask: true,
      srcKeyPaddingMask: true,
      srcIsCausal: true,
      tgtMask: true,
      memoryMask: true,
      tgtKeyPaddingMask: true,
      memoryKeyPaddingMask: true,
      tgtIsCausal: true,
      memoryIsCausal: true,
    });
    const { srcMask, srcKeyPaddingMask, srcIsCausal = false, ...decoding } = options;
    const memory = this.encoder.forward(src, {
      ...{ mask: srcMask ?? null, keyPaddingMask: srcKeyPaddingMask ?? null },
      isCausal: srcIsCausal,
    });
    return this.decoder.forward(tgt, memory, decoding);
  }
}

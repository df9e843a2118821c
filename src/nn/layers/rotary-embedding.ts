/** RotaryEmbedding: positions as rotations of the queries and keys of attention. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { formatShape } from "../../ops/index.js";
import { cat, type Tensor } from "../../tensor/index.js";
import { Buffer } from "../buffer.js";
import { Module } from "../module.js";
import { requireDivides, requireSizes } from "./checks.js";

/** Options of a `RotaryEmbedding`. */
export interface RotaryEmbeddingOptions {
  /** The largest position + 1. Default: 4096. */
  readonly maxLength?: number;
  /** The wavelength of the slowest rotation is 2π times this. Default: 10000. */
  readonly base?: number;
}

/**
 * Rotates each pair (i, i + width / 2) of a vector by its position times a frequency, as in LLaMA: for queries and keys
 * […, rows, width], before attention.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const rotary = new nn.RotaryEmbedding(2, { maxLength: 16 }).to(cpu);
 * const y = rotary.forward(ones([3, 2]));
 * console.log(y.select(0, 0).tolist(), y.norm(-1).sub(Math.SQRT2).abs().amax().item() < 1e-6); // → [ 1, 1 ] true
 * cpu.close();
 * ```
 */
export class RotaryEmbedding extends Module {
  readonly width: number;
  readonly maxLength: number;
  readonly base: number;
  /** [maxLength, width] */
  readonly cosines: Buffer;
  readonly sines: Buffer;

  constructor(width: number, options: RotaryEmbeddingOptions = {}) {
    const { maxLength = 4096, base = 10_000 } = checkOptions("nn.RotaryEmbedding", options, {
      maxLength: true,
      base: true,
    });
    super();
    requireSizes("RotaryEmbedding", { width, maxLength });
    requireDivides("RotaryEmbedding", width, "width", 2, "halves");
    this.width = width;
    this.maxLength = maxLength;
    this.base = base;
    const half = width / 2;
    const table = (wave: (angle: number) => number): Buffer =>
      new Buffer(
        [maxLength, width],
        () =>
          Float64Array.from({ length: maxLength * width }, (_, index) => {
            const [position, pair] = [Math.floor(index / width), index % half];
            return wave(position * base ** (-pair / half));
          }),
        { persistent: false, staysF32: true },
      );
    this.cosines = table(Math.cos);
    this.sines = table(Math.sin);
  }

  /** […, rows, width] to the same shape. The first row has the position `start`. */
  forward(x: Tensor, options: { readonly start?: number } = {}): Tensor {
    const { start = 0 } = checkOptions("nn.RotaryEmbedding.forward", options, { start: true });
    const [rows = 0, width] = x.shape.slice(-2);
    if (width !== this.width || start + rows > this.maxLength || start < 0) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `RotaryEmbedding: positions ${start} to ${start + rows - 1} of ${formatShape(x.shape)}; it has ${this.maxLength} positions of width ` +
          `${this.width}. Pass a larger maxLength.`,
        { numbers: { rows, start, maxLength: this.maxLength } },
      );
    }
    const half = this.width / 2;
    const [first, second] = [x.narrow(-1, 0, half), x.narrow(-1, half, half)];
    const turned = cat([second.neg(), first], -1);
    const [cosines, sines] = [this.cosines, this.sines].map((table) => table.narrow(0, start, rows));
    if (!cosines || !sines) return x;
    return x.mul(cosines).add(turned.mul(sines)).to(x.dtype);
  }

  protected override describe(): string {
    return `width=${this.width}, maxLength=${this.maxLength}, base=${this.base}`;
  }
}

/** Windows as columns, and back. */

import { checkOptions } from "../../errors/index.js";
import type { PerAxis, WindowOptions } from "../../ops/index.js";
import { windowOptionNames } from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";
import { fold, unfold } from "../functional.js";
import { Module } from "../module.js";

/**
 * The windows of images as columns; see `nn.functional.unfold`.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Unfold(2, { stride: 2 }).forward(ones([1, 3, 4, 4])).shape); // → [ 1, 12, 4 ]
 * cpu.close();
 * ```
 */
export class Unfold extends Module {
  readonly kernelSize: PerAxis;
  readonly options: WindowOptions;

  constructor(kernelSize: PerAxis, options: WindowOptions = {}) {
    checkOptions("nn.Unfold", options, windowOptionNames);
    super();
    this.kernelSize = kernelSize;
    this.options = options;
  }

  /** [N, C, H, W] or [C, H, W] to [N, C · kH · kW, windows], or without the batch. */
  forward(x: Tensor): Tensor {
    return unfold(x, this.kernelSize, this.options);
  }

  protected override describe(): string {
    return `kernelSize=${String(this.kernelSize)}`;
  }
}

/**
 * Adds windows as columns to images; see `nn.functional.fold`.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Fold(4, 2, { stride: 2 }).forward(ones([1, 12, 4])).shape); // → [ 1, 3, 4, 4 ]
 * cpu.close();
 * ```
 */
export class Fold extends Module {
  readonly outputSize: PerAxis;
  readonly kernelSize: PerAxis;
  readonly options: WindowOptions;

  constructor(outputSize: PerAxis, kernelSize: PerAxis, options: WindowOptions = {}) {
    checkOptions("nn.Fold", options, windowOptionNames);
    super();
    this.outputSize = outputSize;
    this.kernelSize = kernelSize;
    this.options = options;
  }

  /** [N, C · kH · kW, windows] to [N, C, H, W], or without the batch. */
  forward(x: Tensor): Tensor {
    return fold(x, this.outputSize, this.kernelSize, this.options);
  }

  protected override describe(): string {
    return `outputSize=${String(this.outputSize)}, kernelSize=${String(this.kernelSize)}`;
  }
}

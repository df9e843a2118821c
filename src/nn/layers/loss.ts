/** The base of losses: functions of `nn.functional` with stored options. */

import type { Tensor } from "../../tensor/index.js";
import { Module } from "../module.js";

/** Stores the options and shows them when the module is printed. */
export abstract class OptionsModule<Options extends object> extends Module {
  readonly options: Options;

  constructor(options: Options) {
    super();
    this.options = options;
  }

  protected override describe(): string {
    return Object.entries(this.options)
      .map(
        ([name, value]) =>
          `${name}=${typeof value === "object" || typeof value === "function" ? kindOf(value) : value}`,
      )
      .join(", ");
  }
}

/** A loss of an input and a target. */
export abstract class Loss<Options extends object> extends OptionsModule<Options> {
  abstract forward(input: Tensor, target: Tensor): Tensor;
}

function kindOf(value: object | null): string {
  if (value === null) return "none";
  return typeof value === "function" ? "function" : "tensor";
}

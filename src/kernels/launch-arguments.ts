/** The arguments of a launch: values by name, in the order of the kernel's parameters. */

import type { Parameter } from "../driver/index.js";
import type { Storage } from "../runtime/index.js";

/** Selects the values of the declared parameters, in their order. Other values are ignored. */
export function argumentsInOrder<Parameters extends Readonly<Record<string, Parameter>>>(
  parameters: Parameters,
  values: Readonly<Record<keyof Parameters, Storage | number>>,
): (Storage | number)[] {
  return Object.keys(parameters).map((name: keyof Parameters) => values[name]);
}

/** Methods that read a tensor's elements to the host. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, type ElementArray } from "../../ir/index.js";
import { formatShape } from "../../ops/index.js";
import { type NestedList, toNested } from "../format/nested.js";
import { numberAt } from "../host-values.js";
import type { Tensor } from "../tensor.js";

export const readingMethods = {
  /**
   * The elements on the host in row-major order, after all work issued so far. Half floats are widened to f32. i64 is converted
   * to numbers, in a Float64Array; a number beyond 2^53 is rejected (`bigInts()` reads it). The call itself
   * reads them and throws errors, so that a compiled function that does not await the promise is rejected too.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2], { dtype: "bf16" });
   * console.log(await x.mul(3).data()); // → Float32Array(2) [ 3, 6 ]
   * cpu.close();
   * ```
   */
  data(this: Tensor): Promise<ElementArray<"f32" | "f64" | "i32" | "i8" | "u8">> {
    return Promise.resolve(this.dataSync());
  },
  /**
   * `data()` without the promise, for inside a step.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([3, 4]);
   * console.log(cpu.step(() => x.square().dataSync())); // → Float32Array(2) [ 9, 16 ]
   * cpu.close();
   * ```
   */
  dataSync(this: Tensor): ElementArray<"f32" | "f64" | "i32" | "i8" | "u8"> {
    return this.device.readElements(this);
  },
  /**
   * The elements of a tensor of integers or booleans as 64-bit integers: the way to read i64 beyond 2^53.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor(new BigInt64Array([2n ** 60n, -1n]));
   * console.log(x.add(1).bigInts()); // → BigInt64Array(2) [ 1152921504606846977n, 0n ]
   * cpu.close();
   * ```
   */
  bigInts(this: Tensor): BigInt64Array {
    if (dtypes[this.dtype].kind === "float") {
      throw new HoldfastError(
        "BAD_DTYPE",
        `bigInts() of "${this.name}", which is ${this.dtype}: only integers and booleans are whole numbers. Use data() or to("i64").`,
      );
    }
    const elements = this.device.readExact(this);
    return elements instanceof BigInt64Array ? elements : BigInt64Array.from(elements, BigInt);
  },
  /**
   * The value of a tensor of one element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[2.5]]).item()); // → 2.5
   * cpu.close();
   * ```
   */
  item(this: Tensor): number {
    if (this.numel !== 1) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `item() of "${this.name}" with shape ${formatShape(this.shape)}: it has ${this.numel} elements, and item() reads one. ` +
          "Use data() or tolist().",
      );
    }
    return numberAt(this.dataSync(), 0);
  },
  /**
   * The elements as nested arrays, or one number. A type argument says how deep they are: `tolist<number[][]>()` of a matrix of numbers.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).gt(2).tolist(), tensor(7).tolist()); // → [ [ false, false ], [ true, true ] ] 7
   * const rows = tensor([[1, 2], [3, 4]]).tolist<number[][]>();
   * console.log(rows.map((row) => Math.max(...row))); // → [ 2, 4 ]
   * cpu.close();
   * ```
   */
  tolist<T extends NestedList = NestedList>(this: Tensor): T {
    return toNested(this.shape, this.dataSync(), this.dtype === "bool" ? "boolean" : "float") as T;
  },
};

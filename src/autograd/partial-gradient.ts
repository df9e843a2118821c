/**
 * A gradient that arrives part by part: the first gradient of a part is written, later ones are added, and elements without a gradient
 * are zero.
 */

import {
  type Attributes,
  addToView,
  type DeviceArray,
  type KernelOp,
  runInto,
  type StridedView,
  sizeOf,
  writeView,
  zeroViews,
} from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { type Box, splitBoxes, viewOfBox, wholeBox } from "./box.js";

export class PartialGradient {
  readonly #runtime: Runtime;
  readonly #array: DeviceArray;
  /** Elements that no gradient was written to, as disjoint boxes; undefined if unknown, and then all elements are valid. */
  #unwritten: readonly Box[] | undefined;
  /** True if all unwritten elements are zero. */
  #isZeroed: boolean;
  /** Zeros to write before the first gradient. */
  #zeros: readonly Box[];

  /**
   * `array`: contiguous memory without values. `expected`: the parts that will probably arrive. They decide how zeros are written, and
   * nothing else.
   */
  constructor(runtime: Runtime, array: DeviceArray, expected: readonly Box[]) {
    this.#runtime = runtime;
    this.#array = array;
    const whole = wholeBox(array.shape);
    const gaps = expected.reduce<readonly Box[] | undefined>(
      (rest, box) => rest && splitBoxes(rest, box)?.outside,
      [whole],
    );
    const isOneGap = gaps?.length === 1;
    // Each gap costs a launch, so several gaps are filled together with the rest.
    this.#zeros = gaps && gaps.length <= 1 ? gaps : [whole];
    this.#isZeroed = !isOneGap && this.#zeros.length > 0;
    this.#unwritten = isOneGap ? splitBoxes([whole], gaps[0] ?? whole)?.outside : gaps && [whole];
  }

  /** Adds a gradient to a view of the array. `box`: the view's elements. */
  add(gradient: DeviceArray, view: StridedView, box: Box): void {
    const split = this.#unwritten && splitBoxes(this.#unwritten, box);
    if (!split) {
      this.finish();
      this.#unwritten = undefined;
      this.#run(addToView, [gradient], { view });
      return;
    }
    const { inside, outside } = split;
    this.#unwritten = outside;
    if (inside.length > 0 && elementsOf(inside) === elementsOf([box])) {
      this.#run(writeView, [gradient], { view, zeros: this.#takeZeros([]) });
      return;
    }
    // Some of the elements have a gradient.
    this.#zero(this.#takeZeros(this.#isZeroed ? [] : inside));
    this.#run(addToView, [gradient], { view });
  }

  /** Writes the zeros of elements without a gradient. */
  finish(): void {
    this.#zero(this.#takeZeros(this.#isZeroed ? [] : (this.#unwritten ?? [])));
    this.#isZeroed = true;
  }

  #takeZeros(others: readonly Box[]): readonly StridedView[] {
    const boxes = [...this.#zeros, ...others];
    this.#zeros = [];
    return boxes.map((box) => viewOfBox(box, this.#array));
  }

  #zero(zeros: readonly StridedView[]): void {
    if (zeros.length > 0) this.#run(zeroViews, [], { zeros });
  }

  readonly #run = <A extends Attributes>(
    op: KernelOp<A>,
    operands: readonly DeviceArray[],
    attributes: A,
  ): void => runInto(this.#runtime, op, this.#array, [this.#array, ...operands], attributes);
}

function elementsOf(boxes: readonly Box[]): number {
  return boxes.reduce((sum, box) => sum + sizeOf(box.map(({ count }) => count)), 0);
}

/**
 * The kernels of a merge sort of rows. Each pass is one launch over all elements: an output element finds its source by a binary search in
 * two sorted runs. Equal elements keep their order, and NaN counts as the largest number, as in PyTorch.
 */

import { type Dtype, dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";

/** The elements of the runs that the first pass sorts by counting. */
export const firstRun = 8;

/** Rows of this length have the positions of elements. */
export const positionRow = 1024;

/** Stores the position of each element in a list of whole rows. */
export const positionKernel: RowKernel = {
  name: "positions",
  inputs: [],
  outputs: [{ dtype: "i32", per: "element" }],
  scalars: [],
  stages: [
    {
      kind: "store",
      output: 0,
      value: term.add(term.position, term.mul(term.row, term.constant(positionRow, "i32"))),
    },
  ],
};

type Order = (a: Expression, b: Expression) => Expression;

/** True if `a` must come before `b`, wherever they are now. */
function strictOrder(isDescending: boolean): Order {
  const isNan = (x: Expression): Expression => term.ne(x, x);
  const isNumber = (x: Expression): Expression => term.eq(x, x);
  return (a, b) => {
    if (a.type === "i32") return isDescending ? term.gt(a, b) : term.lt(a, b);
    return isDescending
      ? term.max(term.gt(a, b), term.min(isNan(a), isNumber(b)))
      : term.max(term.lt(a, b), term.min(isNumber(a), isNan(b)));
  };
}

/**
 * Inputs: keys, the elements' indices in their row, the positions of elements, and the first output. Outputs: the distance to an element's
 * source, keys, indices. The first output is stored and loaded again, so that the search is computed once.
 */
function passKernel(name: string, dtype: Dtype, scalars: number, distance: Expression): RowKernel {
  const { compute } = dtypes[dtype];
  const source = term.load(3, "i32");
  return {
    name,
    inputs: [dtype, "i32", "i32", "i32"],
    outputs: [
      { dtype: "i32", per: "element" },
      { dtype, per: "element" },
      { dtype: "i32", per: "element" },
    ],
    scalars: new Array<"i32">(scalars).fill("i32"),
    stages: [
      { kind: "store", output: 0, value: distance },
      { kind: "store", output: 1, value: term.load(0, compute, source) },
      { kind: "store", output: 2, value: term.load(1, "i32", source) },
    ],
  };
}

const kernels = new Map<string, RowKernel>();

function cached(key: string, make: () => RowKernel): RowKernel {
  const kernel = kernels.get(key) ?? make();
  kernels.set(key, kernel);
  return kernel;
}

const position = term.load(2, "i32");

/** Scalar: the length of a row. Sorts runs of eight: an element's place is the number of elements that come before it. */
export function firstPassKernel(dtype: Dtype, isDescending: boolean): RowKernel {
  return cached(`first ${dtype} ${isDescending}`, () => {
    const { compute } = dtypes[dtype];
    const comesBefore = strictOrder(isDescending);
    const length = term.scalar(0, "i32");
    const start = term.and(position, term.constant(-firstRun, "i32"));
    const places = Array.from({ length: firstRun }, (_, member) => term.add(start, member));
    const last = term.sub(length, 1);
    const distances = places.map((place) => term.sub(term.min(place, last), position));
    const keys = distances.map((distance) => term.load(0, compute, distance));
    // A run at the end of a row may be shorter: members after the end come last.
    const exists = places.map((place) => term.lt(place, length));
    const at = <T>(list: readonly T[], index: number): T => list[index] as T;
    /** For a < b: true if member b comes before member a. */
    const isSwapped = (a: number, b: number): Expression =>
      term.min(at(exists, b), comesBefore(at(keys, b), at(keys, a)));
    const ranks = keys.map(() => term.constant(0, "i32"));
    for (let b = 0; b < firstRun; b++) {
      for (let a = 0; a < b; a++) {
        const swapped = isSwapped(a, b);
        ranks[a] = term.add(at(ranks, a), swapped);
        ranks[b] = term.add(at(ranks, b), term.sub(1, swapped));
      }
    }
    const place = term.sub(position, start);
    const distance = distances.reduceRight((other, distance, member) =>
      term.select(term.eq(at(ranks, member), place), distance, other),
    );
    return passKernel("sort of short runs", dtype, 1, distance);
  });
}

/**
 * Scalars: the length of a row, the length of a run, and the mask of a pair of runs. `steps` is enough for the binary search: the number of
 * elements of the first run that are among the outputs before this one.
 */
export function mergeKernel(dtype: Dtype, isDescending: boolean, steps: number): RowKernel {
  return cached(`merge ${dtype} ${isDescending} ${steps}`, () => {
    const { compute } = dtypes[dtype];
    const comesBefore = strictOrder(isDescending);
    const [length, run, mask] = [term.scalar(0, "i32"), term.scalar(1, "i32"), term.scalar(2, "i32")];
    const last = term.sub(length, 1);
    const start = term.and(position, mask);
    const second = term.add(start, run);
    const place = term.sub(position, start);
    const firstCount = term.min(run, term.sub(length, start));
    const secondCount = term.max(term.min(run, term.sub(length, second)), 0);
    const distanceTo = (place: Expression): Expression =>
      term.sub(term.max(term.min(place, last), 0), position);
    const keyAt = (place: Expression): Expression => term.load(0, compute, distanceTo(place));
    let low = term.max(term.sub(place, secondCount), 0);
    let high = term.min(place, firstCount);
    for (let step = 0; step < steps; step++) {
      const middle = term.shr(term.add(low, high), 1);
      const ofFirst = keyAt(term.add(start, middle));
      const ofSecond = keyAt(term.sub(term.add(second, term.sub(place, 1)), middle));
      const takesMore = term.min(term.lt(low, high), term.eq(comesBefore(ofSecond, ofFirst), 0));
      low = term.select(takesMore, term.add(middle, 1), low);
      high = term.select(takesMore, high, middle);
    }
    const [inFirst, inSecond] = [term.add(start, low), term.add(second, term.sub(place, low))];
    const isSecondEmpty = term.ge(term.sub(place, low), secondCount);
    const isFirstNext = term.max(isSecondEmpty, term.eq(comesBefore(keyAt(inSecond), keyAt(inFirst)), 0));
    const isFromFirst = term.min(term.lt(low, firstCount), isFirstNext);
    return passKernel("merge of runs", dtype, 3, distanceTo(term.select(isFromFirst, inFirst, inSecond)));
  });
}

/** The steps of a binary search in a run, rounded up to a multiple of four, so that passes share kernels. */
export function searchSteps(run: number): number {
  return Math.ceil((Math.log2(run) + 1) / 4) * 4;
}

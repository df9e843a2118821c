/** The op table: every entry by its name. Tests go through it; nothing may be in the engine that is not in here. */

import * as activations from "./elementwise/activations.js";
import { add, div, maximum, minimum, mul, pow, sub } from "./elementwise/arithmetic.js";
import { cast, contiguous } from "./elementwise/cast.js";
import * as comparisons from "./elementwise/comparisons.js";
import * as functions from "./elementwise/functions.js";
import { linear, matmul } from "./matmul/matmul.js";
import { expand, permute, reshape } from "./movement/reshape.js";
import type { Op } from "./op.js";
import { mean, sum } from "./reduction/sum.js";

export const opTable: Readonly<Record<string, Op>> = {
  ...{ add, sub, mul, div, pow, maximum, minimum, cast, contiguous },
  ...comparisons,
  ...functions,
  ...activations,
  ...{ sum, mean },
  ...{ matmul, linear },
  ...{ reshape, permute, expand },
};

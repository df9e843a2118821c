/** All kinds of instructions, and how often each is generated. */

import type { Builder } from "./builder.js";
import type { Choices } from "./choices.js";
import { elementwiseMakers } from "./elementwise.js";
import { layerMakers } from "./layers.js";
import { layoutMakers } from "./layouts.js";
import { rowMakers } from "./rows.js";
import { specialFunctionMakers } from "./special-functions.js";
import { stateMakers } from "./states.js";

/** Adds an instruction, or a few that belong together. */
export type Maker = (builder: Builder, choices: Choices) => void;

const weights: Readonly<Record<string, number>> = {
  ...{ unary: 6, binary: 6, withNumber: 3, dropout: 3, reduction: 3, linear: 3, normalisation: 3 },
  ...{ slice: 2, select: 2, reshape: 2, permute: 2, expand: 2, backward: 5, inPlace: 5, intoPart: 3 },
  ...{ ofState: 3, optimize: 2, places: 2, windows: 2, move: 2 },
  ...{ special: 4, ofUnitInterval: 3, ofPositive: 3, rounding: 2, ofTwo: 2, ofThree: 2, activation: 3 },
};

export const makers: readonly Maker[] = Object.entries({
  ...elementwiseMakers,
  ...layoutMakers,
  ...rowMakers,
  ...specialFunctionMakers,
  ...layerMakers,
  ...stateMakers,
}).flatMap(([name, maker]) => Array.from({ length: weights[name] ?? 1 }, () => maker));

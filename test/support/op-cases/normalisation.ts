/** Cases of the normalisations. */

import type { OpCase } from "./op-case.js";

export const normalisationCases: readonly OpCase[] = [];

/** Cases of the indexing family. */

import type { OpCase } from "./op-case.js";

export const indexingCases: readonly OpCase[] = [];

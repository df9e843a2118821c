/** Cases of the attention family. */

import type { OpCase } from "./op-case.js";

export const attentionCases: readonly OpCase[] = [];

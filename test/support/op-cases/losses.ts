/** Cases of the losses family. */

import type { OpCase } from "./op-case.js";

export const lossesCases: readonly OpCase[] = [];

/** The contents of the oracle's files: trajectories of CrossAsset, and cases of convolutions and pools. */

import type { PerAxis, WindowOptions } from "../../src/ops/index.js";

export interface Trajectory {
  readonly name: string;
  readonly config: {
    readonly S: number;
    readonly F: number;
    readonly D: number;
    readonly H: number;
    readonly L: number;
    readonly qkNorm: boolean;
  };
  readonly lr: number;
  readonly betas: readonly [number, number];
  readonly eps: number;
  readonly weight_decay: number;
  readonly clip: number;
  readonly steps: number;
  readonly loss: readonly number[];
  readonly grad_norm: readonly number[];
}

export interface Listed {
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

export interface ConvolutionCase {
  readonly op: string;
  readonly attrs: WindowOptions & { readonly groups?: number; readonly kernel_size?: PerAxis };
  readonly inputs: readonly (Listed | null)[];
  readonly output: Listed;
  readonly upstream: Listed;
  readonly grads: readonly (Listed | null)[];
}

/** convolution/cuda/depthwise: convolutions of each channel with its own taps, channels-first or channels-last, on every GPU. */

export {
  countDepthwiseConfigs,
  depthwiseScratchBytes,
  isDepthwiseConvolution,
  selectDepthwiseConfig,
} from "./configs.js";
export { lowerDepthwise } from "./launch.js";

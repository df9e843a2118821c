/** convolution/cuda/channels-last: convolutions of images whose channels are contiguous, on Hopper's tensor cores: wgmma, and DMMA in f32. */

export { channelsLastConvolution, listChannelsLastConfigs, selectChannelsLastConfig } from "./configs.js";
export { type ChannelsLastConfig, channelsLastScratchBytes, lowerChannelsLastWith } from "./launch.js";

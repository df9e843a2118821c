/** crossasset: the CrossAsset application; the model so far. */

export { CrossAsset, type CrossAssetOptions } from "./model.js";

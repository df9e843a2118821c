export { convolutionScratchBytes, lowerConvolutionOnCuda } from "./launch.js";

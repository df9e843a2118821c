/** A variational autoencoder of 8 × 8 images of blobs, with two latent numbers. Noise is drawn on the device, inside a compiled step. */

import { device, manualSeed, nn, noGrad, optim, rand, randn, randnLike, type Tensor } from "holdfast";

const side = 8;

export class Vae extends nn.Module {
  readonly encoder = new nn.Sequential(new nn.Linear(side * side, 64), new nn.SiLU());
  readonly mean = new nn.Linear(64, 2);
  readonly logVariance = new nn.Linear(64, 2);
  readonly decoder = new nn.Sequential(
    new nn.Linear(2, 64),
    new nn.SiLU(),
    new nn.Linear(64, 64),
    new nn.SiLU(),
    new nn.Linear(64, side * side),
  );

  forward(x: Tensor): { logits: Tensor; mean: Tensor; logVariance: Tensor } {
    const h = this.encoder.forward(x);
    const [mean, logVariance] = [this.mean.forward(h), this.logVariance.forward(h)];
    const z = this.isTraining ? mean.add(logVariance.mul(0.5).exp().mul(randnLike(mean))) : mean;
    return { logits: this.decoder.forward(z), mean, logVariance };
  }
}

/** The negative evidence lower bound per image. */
export function lossOf(model: Vae, x: Tensor): Tensor {
  const { logits, mean, logVariance } = model.forward(x);
  const error = nn.functional.binaryCrossEntropyWithLogits(logits, x, { reduction: "sum" });
  const divergence = logVariance.add(1).sub(mean.square()).sub(logVariance.exp()).sum().mul(-0.5);
  return error.add(divergence).div(x.size(0));
}

/** Images of a round blob at a random place. [count, side²] */
function drawBlobs(places: Float32Array): Float32Array {
  const pixels = side * side;
  return Float32Array.from({ length: (places.length / 2) * pixels }, (_, index) => {
    const image = Math.floor(index / pixels);
    const [cx = 0, cy = 0] = [places[2 * image], places[2 * image + 1]].map(
      (place = 0) => 1.5 + place * (side - 4),
    );
    return Math.exp(-(((index % side) - cx) ** 2 + (Math.floor((index % pixels) / side) - cy) ** 2) / 3);
  });
}

export async function main(steps = 250): Promise<{ before: number; after: number; sampleRange: number }> {
  const cpu = await device("cpu");
  manualSeed(8);
  const places = cpu.step(() => Float32Array.from(rand([640]).dataSync()));
  const [train, heldOut] = [drawBlobs(places.subarray(0, 512)), drawBlobs(places.subarray(512))];
  const x = cpu.fromHost(train, [256, side * side], "f32");
  const unseen = cpu.fromHost(heldOut, [64, side * side], "f32");
  const model = new Vae().to(cpu);
  const optimizer = new optim.Adam(model.parameters(), { lr: 5e-3 });

  const heldOutLoss = () => {
    model.eval();
    const loss = cpu.step(() => noGrad(() => lossOf(model, unseen).item()));
    model.train();
    return loss;
  };
  const before = heldOutLoss();
  const step = cpu.compile(() => {
    const loss = lossOf(model, x);
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });
  for (let index = 0; index < steps; index++) step();
  const after = heldOutLoss();

  // Images of random latent numbers are blobs too: their brightest pixel is near 1, and their darkest near 0.
  const sampleRange = cpu.step(() =>
    noGrad(() => {
      const images = model.decoder.forward(randn([16, 2])).sigmoid();
      return images.amax(1).sub(images.amin(1)).mean().item();
    }),
  );
  cpu.close();
  return { before, after, sampleRange };
}

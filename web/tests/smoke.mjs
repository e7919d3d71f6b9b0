// Does WebGPU compute in every installed browser? Run: node smoke.mjs [http://127.0.0.1:PORT/]
//
// Without an address a small page of its own is served: `navigator.gpu` exists only on a secure origin.

import { createServer } from "node:http";
import { find, launch, names } from "./browsers.mjs";

/** Doubles four numbers on the GPU, inside the page. */
async function compute() {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) return { error: navigator.gpu ? "no adapter" : "no navigator.gpu" };
  const device = await adapter.requestDevice();
  const module = device.createShaderModule({
    code: `@group(0) @binding(0) var<storage, read_write> x: array<f32>;
      @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) { x[i] = 2.0 * x[i]; }`,
  });
  const pipeline = device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
  const usage = GPUBufferUsage;
  const x = device.createBuffer({ size: 16, usage: usage.STORAGE | usage.COPY_SRC | usage.COPY_DST });
  const back = device.createBuffer({ size: 16, usage: usage.MAP_READ | usage.COPY_DST });
  device.queue.writeBuffer(x, 0, new Float32Array([1, 2, 3, 4]));
  const entries = [{ binding: 0, resource: { buffer: x } }];
  const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(1);
  pass.end();
  encoder.copyBufferToBuffer(x, 0, back, 0, 16);
  device.queue.submit([encoder.finish()]);
  await back.mapAsync(GPUMapMode.READ);
  const result = [...new Float32Array(back.getMappedRange())];
  return { result, f16: adapter.features.has("shader-f16"), invocations: adapter.limits.maxComputeInvocationsPerWorkgroup };
}

const server = createServer((_, response) => {
  response.setHeader("Content-Type", "text/html");
  response.end('<!doctype html><title>smoke</title><link rel="icon" href="data:,">');
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const address = process.argv[2] ?? `http://127.0.0.1:${server.address().port}/`;

let failed = 0;
for (const name of names) {
  if (!find(name)) {
    console.log(`${name}: skipped, not installed`);
    continue;
  }
  const { browser, page, problems, close } = await launch(name);
  try {
    await page.goto(address);
    const got = await page.evaluate(compute);
    const ok = JSON.stringify(got.result) === "[2,4,6,8]" && problems.length === 0;
    failed += ok ? 0 : 1;
    console.log(`${name}: ${ok ? "ok" : "FAILED"}`, await browser.version(), JSON.stringify(got), ...problems);
  } catch (error) {
    failed += 1;
    console.log(`${name}: FAILED`, error.message);
  } finally {
    await close();
  }
}
server.close();
process.exit(failed ? 1 : 0);

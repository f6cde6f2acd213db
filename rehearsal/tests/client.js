// What a program in Node does with Google's own packages; says as JSON what came of it.
"use strict";
const {Storage} = require("@google-cloud/storage");
const {JobServiceClient} = require("@google-cloud/aiplatform");
const {grpc} = require("google-gax");

const [address, grpcAddress, image, token] = process.argv.slice(2);
const parent = "projects/demo/locations/us-central1";
const refusal = async (what) => what.then(() => null, (error) => error.code);

async function objects() {
  const bucket = (await new Storage({projectId: "demo", apiEndpoint: address}).createBucket("from-node"))[0];
  await bucket.file("a/small.txt").save("hello", {resumable: false});
  await bucket.file("a/large.bin").save(Buffer.alloc(3_000_000, 7), {resumable: true});
  await bucket.file("a/small.txt").copy("copy.txt");
  await bucket.combine(["a/small.txt", "copy.txt"], "both.txt");
  return {
    listed: (await bucket.getFiles({prefix: "a/"}))[0].map((file) => [file.name, Number(file.metadata.size)]),
    both: (await bucket.file("both.txt").download())[0].toString(),
    large: (await bucket.file("a/large.bin").download())[0].equals(Buffer.alloc(3_000_000, 7)),
    overwritten: await refusal(bucket.file("a/small.txt").save("x", {resumable: false, preconditionOpts: {ifGenerationMatch: 0}})),
    missing: await refusal(bucket.file("nothing").download()),
  };
}

async function jobs(client, options = {}) {
  const containerSpec = {imageUri: image, command: ["python", "-S", "-c", "print('hello')"]};
  const pool = {machineSpec: {machineType: "n1-standard-4"}, replicaCount: 1, containerSpec};
  const customJob = {displayName: "from node", jobSpec: {workerPoolSpecs: [pool]}};
  const [{name}] = await client.createCustomJob({parent, customJob}, options);
  let job;
  do {
    await new Promise((done) => setTimeout(done, 50));
    [job] = await client.getCustomJob({name}, options);
  } while (!job.endTime);
  const [listed] = await client.listCustomJobs({parent}, options);
  const unnamed = await refusal(client.createCustomJob({parent, customJob: {...customJob, displayName: ""}}, options));
  const [operation] = await client.deleteCustomJob({name}, options);
  await operation.promise();
  const found = {state: job.state, listed: listed.some((one) => one.name === name), unnamed, gone: await refusal(client.getCustomJob({name}, options))};
  await client.close();
  return found;
}

(async () => {
  const http = new URL(address), [host, port] = grpcAddress.split(":");
  const rest = new JobServiceClient({fallback: true, protocol: "http", apiEndpoint: http.hostname, port: Number(http.port)});
  const overGrpc = new JobServiceClient({apiEndpoint: host, port: Number(port), sslCreds: grpc.credentials.createInsecure()});
  const bearer = {otherArgs: {headers: {authorization: `Bearer ${token}`}}};  // an insecure channel takes no credentials
  console.log(JSON.stringify({objects: await objects(), rest: await jobs(rest), grpc: await jobs(overGrpc, bearer)}));
})().catch((error) => { console.error(error); process.exitCode = 1; });

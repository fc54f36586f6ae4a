# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

output "url" {
  description = "The store's url."
  value       = local.url
}

output "environment" {
  description = "The environment of every process of a run, but for its run id, GYM_OBJSTORE_RUN_ID, and its credentials."
  value = {
    GYM_OBJSTORE_URL = local.url
    AWS_ENDPOINT_URL = var.endpoint
    AWS_REGION       = var.region
  }
}

output "exports" {
  description = "The same as lines for a shell."
  value = join("\n", [
    "export GYM_OBJSTORE_URL=${local.url}",
    "export AWS_ENDPOINT_URL=${var.endpoint}",
    "export AWS_REGION=${var.region}",
    "export GYM_OBJSTORE_RUN_ID= # the same on every node, new for every run",
  ])
}

output "gym_yaml" {
  description = "Token capture for Gym's YAML; the run id comes from GYM_OBJSTORE_RUN_ID, credentials from the environment."
  value       = <<-YAML
    token_id_capture:
      enabled: true
      sink: gym_objstore_nemo_gym:TokenSink
      sink_kwargs: {url: "${local.url}"}
      lineage_store: gym_objstore_nemo_gym:LineageStore
      lineage_store_kwargs: {url: "${local.url}"}
  YAML
}

output "credentials" {
  description = "By identity, the variables with its user's keys. They are in the state, too: keep it where secrets may be."
  sensitive   = true
  value = {
    for identity, key in aws_iam_access_key.identity :
    identity => { AWS_ACCESS_KEY_ID = key.id, AWS_SECRET_ACCESS_KEY = key.secret }
  }
}

output "policies" {
  description = "By identity, its policy as JSON, for servers whose users are made otherwise, such as MinIO's with mc."
  value       = module.policies.documents
}

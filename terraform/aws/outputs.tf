# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

locals {
  url = join("/", compact(["s3://${aws_s3_bucket.this.id}", var.prefix]))
}

output "url" {
  description = "The store's url."
  value       = local.url
}

output "express_url" {
  description = "The url of the directory bucket; null without one."
  value       = length(aws_s3_directory_bucket.this) == 0 ? null : join("/", compact(["s3://${aws_s3_directory_bucket.this[0].bucket}", var.prefix]))
}

output "environment" {
  description = "The environment of every process of a run, but for its run id, GYM_OBJSTORE_RUN_ID."
  value = {
    GYM_OBJSTORE_URL = local.url
    AWS_REGION       = aws_s3_bucket.this.region
  }
}

output "exports" {
  description = "The same as lines for a shell."
  value = join("\n", [
    "export GYM_OBJSTORE_URL=${local.url}",
    "export AWS_REGION=${aws_s3_bucket.this.region}",
    "export GYM_OBJSTORE_RUN_ID= # the same on every node, new for every run",
  ])
}

output "gym_yaml" {
  description = "Token capture for Gym's YAML; the run id comes from GYM_OBJSTORE_RUN_ID."
  value       = <<-YAML
    token_id_capture:
      enabled: true
      sink: gym_objstore_nemo_gym:TokenSink
      sink_kwargs: {url: "${local.url}"}
      lineage_store: gym_objstore_nemo_gym:LineageStore
      lineage_store_kwargs: {url: "${local.url}"}
  YAML
}

output "policy_arns" {
  description = "By identity, the ARN of its policy, for roles and users made elsewhere."
  value       = { for identity, policy in aws_iam_policy.identity : identity => policy.arn }
}

output "role_arns" {
  description = "By identity, the ARN of its role, where irsa or trusted_principals say who may take it."
  value       = { for identity, role in aws_iam_role.identity : identity => role.arn }
}

output "service_account_annotations" {
  description = "By identity, the annotation of its Kubernetes service account under IRSA."
  value       = { for identity, role in aws_iam_role.identity : identity => { "eks.amazonaws.com/role-arn" = role.arn } }
}

output "kms_key_arn" {
  description = "ARN of the key that encrypts the bucket; null under AES256."
  value       = local.kms_key_arn
}

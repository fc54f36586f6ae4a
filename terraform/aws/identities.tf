# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

module "policies" {
  source = "../policies"

  bucket                       = var.bucket
  prefix                       = var.prefix
  partition                    = var.partition
  kms_key_arn                  = local.kms_key_arn
  directory_bucket_arn         = one(aws_s3_directory_bucket.this[*].arn)
  model_server_retires_ledgers = var.model_server_retires_ledgers
  sweeper_removes_runs         = var.sweeper_removes_runs
  irsa                         = var.irsa
  trusted_principals           = var.trusted_principals
}

locals {
  name = coalesce(var.name, var.bucket)
}

resource "aws_iam_policy" "identity" {
  for_each = module.policies.documents

  name        = "${local.name}-${each.key}"
  description = "The ${each.key} of rollouts in ${var.bucket}"
  policy      = each.value
  tags        = var.tags
}

resource "aws_iam_role" "identity" {
  for_each = module.policies.trust

  name                 = "${local.name}-${each.key}"
  description          = "The ${each.key} of rollouts in ${var.bucket}"
  assume_role_policy   = each.value
  max_session_duration = 43200
  tags                 = var.tags
}

resource "aws_iam_role_policy_attachment" "identity" {
  for_each = module.policies.trust

  role       = aws_iam_role.identity[each.key].name
  policy_arn = aws_iam_policy.identity[each.key].arn
}

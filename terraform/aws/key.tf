# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

locals {
  makes_key   = var.encryption == "aws:kms" && var.kms_key_arn == null
  kms_key_arn = var.encryption != "aws:kms" ? null : local.makes_key ? aws_kms_key.this[0].arn : var.kms_key_arn
}

data "aws_caller_identity" "this" {}

# The account decides by IAM who uses the key; the identities' own policies name it.
resource "aws_kms_key" "this" {
  count = local.makes_key ? 1 : 0

  description             = "Rollouts in ${var.bucket}"
  enable_key_rotation     = true
  deletion_window_in_days = 30
  tags                    = var.tags

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "LeaveItToIam"
      Effect    = "Allow"
      Principal = { AWS = "arn:${var.partition}:iam::${data.aws_caller_identity.this.account_id}:root" }
      Action    = "kms:*"
      Resource  = "*"
    }]
  })
}

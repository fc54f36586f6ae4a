# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
# The aws provider, pointed at another server, makes bucket, lifecycle and users: one provider to trust for both modules.

locals {
  families = ["captures", "tokens", "staged", "ledger", "manifests"]
  root     = var.prefix == "" ? "" : "${var.prefix}/"
  url      = join("/", compact(["s3://${var.bucket}", var.prefix]))
  users    = var.makes_users ? module.policies.documents : {}
}

module "policies" {
  source = "../policies"

  bucket                       = var.bucket
  prefix                       = var.prefix
  model_server_retires_ledgers = var.model_server_retires_ledgers
  sweeper_removes_runs         = var.sweeper_removes_runs
}

resource "aws_s3_bucket" "this" {
  #checkov:skip=CKV_AWS_18: few other servers write access logs
  #checkov:skip=CKV_AWS_21: objects are never overwritten with other bytes; old versions would only cost
  #checkov:skip=CKV_AWS_144: replication is that server's own business
  #checkov:skip=CKV_AWS_145: there is no KMS beside other servers
  #checkov:skip=CKV2_AWS_6: other servers have no block of public access; nothing here is made public
  #checkov:skip=CKV2_AWS_61: lifecycle rules are an option whose default is on
  #checkov:skip=CKV2_AWS_62: nobody waits for events; readers list
  bucket        = var.bucket
  force_destroy = var.force_destroy
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  count = var.makes_lifecycle ? 1 : 0

  bucket = aws_s3_bucket.this.id

  rule {
    id     = "rests"
    status = "Enabled"

    filter {
      prefix = ""
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = var.aborted_upload_days
    }
  }

  dynamic "rule" {
    for_each = { for family in local.families : family => var.retention_days[family] if var.retention_days[family] != null }

    content {
      id     = "expire-${rule.key}"
      status = "Enabled"

      filter {
        prefix = "${local.root}${rule.key}/"
      }

      expiration {
        days = rule.value
      }
    }
  }
}

resource "aws_iam_user" "identity" {
  #checkov:skip=CKV_AWS_273: there is no SSO beside other servers
  for_each = local.users

  name = "${var.bucket}-${each.key}"
}

resource "aws_iam_access_key" "identity" {
  for_each = local.users

  user = aws_iam_user.identity[each.key].name
}

resource "aws_iam_user_policy" "identity" {
  #checkov:skip=CKV_AWS_40: each identity is one user, and other servers know inline policies best
  for_each = local.users

  name   = "gym-objstore"
  user   = aws_iam_user.identity[each.key].name
  policy = each.value
}

# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

locals {
  families = ["captures", "tokens", "staged", "ledger", "manifests"]
  root     = var.prefix == "" ? "" : "${var.prefix}/"
}

resource "aws_s3_bucket" "this" {
  #checkov:skip=CKV_AWS_18: access logs are an option, for they cost a line for each of millions of requests
  #checkov:skip=CKV_AWS_21: objects are never overwritten with other bytes; old versions would only cost
  #checkov:skip=CKV_AWS_144: rollouts can be made again; a second region would double the cost
  #checkov:skip=CKV_AWS_145: encryption is an option whose default is a KMS key
  #checkov:skip=CKV2_AWS_62: nobody waits for events; readers list
  bucket        = var.bucket
  force_destroy = var.force_destroy
  tags          = var.tags
}

resource "aws_s3_bucket_public_access_block" "this" {
  bucket                  = aws_s3_bucket.this.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_versioning" "this" {
  bucket = aws_s3_bucket.this.id

  versioning_configuration {
    status = var.versioning ? "Enabled" : "Suspended"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    # One key for each bucket and hour, or each of millions of small objects would be a request to KMS.
    bucket_key_enabled = var.encryption == "aws:kms"

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.encryption
      kms_master_key_id = local.kms_key_arn
    }
  }

  lifecycle {
    precondition {
      condition     = var.encryption == "aws:kms" || var.kms_key_arn == null
      error_message = "kms_key_arn is given, but encryption is AES256: choose one."
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  bucket = aws_s3_bucket.this.id
  policy = module.policies.bucket_policy

  depends_on = [aws_s3_bucket_public_access_block.this]
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
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

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_version_days
    }

    expiration {
      expired_object_delete_marker = true
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

  depends_on = [aws_s3_bucket_versioning.this]
}

resource "aws_s3_bucket_logging" "this" {
  count = var.access_log_bucket == null ? 0 : 1

  bucket        = aws_s3_bucket.this.id
  target_bucket = var.access_log_bucket
  target_prefix = "s3-access/${var.bucket}/"
}

resource "aws_s3_directory_bucket" "this" {
  count = var.express_zone_id == null ? 0 : 1

  bucket        = "${replace(var.bucket, ".", "-")}--${var.express_zone_id}--x-s3"
  force_destroy = var.force_destroy

  location {
    name = var.express_zone_id
  }
}

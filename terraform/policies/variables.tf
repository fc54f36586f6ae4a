# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

variable "bucket" {
  description = "Name of the bucket that holds the runs."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "A bucket name has 3 to 63 lower-case letters, digits, dots and hyphens."
  }
}

variable "prefix" {
  description = "What comes after the bucket in the store's url, as rl in s3://bucket/rl; empty for the whole bucket."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^([A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)?$", var.prefix))
    error_message = "The prefix is a path such as team/rl, without a slash at either end and without wildcards."
  }
}

variable "partition" {
  description = "Partition of the ARNs; servers other than AWS use aws, too."
  type        = string
  default     = "aws"

  validation {
    condition     = can(regex("^aws(-[a-z]+)*$", var.partition))
    error_message = "A partition is aws, aws-cn, aws-us-gov or the like."
  }
}

variable "model_server_retires_ledgers" {
  description = "Whether trainers retire ledgers through a model server's control routes, so that it must do the work."
  type        = bool
  default     = false
}

variable "sweeper_removes_runs" {
  description = "Whether the sweeper also removes whole runs, as gc --expire-after does; without it, only what nothing refers to."
  type        = bool
  default     = false
}

variable "kms_key_arn" {
  description = "ARN of the KMS key that encrypts the bucket; null where no key of your own does."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/.+$", var.kms_key_arn))
    error_message = "The key is named by the ARN of a key, not by an alias."
  }
}

variable "directory_bucket_arn" {
  description = "ARN of an S3 Express directory bucket that the identities use as well; null without one."
  type        = string
  default     = null

  validation {
    condition     = var.directory_bucket_arn == null || can(regex("^arn:[^:]+:s3express:.+--x-s3$", var.directory_bucket_arn))
    error_message = "A directory bucket's ARN names s3express and ends in --x-s3."
  }
}

variable "irsa" {
  description = "The cluster's OIDC provider and, by identity, the service accounts that may take its role; null without IRSA."
  type = object({
    oidc_provider_arn = string
    namespace         = string
    service_accounts  = map(string)
  })
  default = null

  validation {
    condition     = var.irsa == null || can(regex("^arn:[^:]+:iam::[0-9]{12}:oidc-provider/.+$", var.irsa.oidc_provider_arn))
    error_message = "oidc_provider_arn is the ARN of an IAM OIDC provider."
  }

  validation {
    condition = var.irsa == null || length(setsubtract(
      keys(try(var.irsa.service_accounts, {})), ["model-server", "inference-worker", "trainer", "sweeper", "viewer"]
    )) == 0
    error_message = "service_accounts are named by identity: model-server, inference-worker, trainer, sweeper, viewer."
  }
}

variable "trusted_principals" {
  description = "By identity, the ARNs of IAM principals that may assume its role."
  type        = map(list(string))
  default     = {}

  validation {
    condition = length(setsubtract(
      keys(var.trusted_principals), ["model-server", "inference-worker", "trainer", "sweeper", "viewer"]
    )) == 0
    error_message = "trusted_principals are named by identity: model-server, inference-worker, trainer, sweeper, viewer."
  }

  validation {
    condition     = alltrue([for arn in flatten(values(var.trusted_principals)) : can(regex("^arn:[^:*]+:(iam|sts)::[0-9]{12}:[^*]+$", arn))])
    error_message = "Trusted principals are full ARNs of roles, users or accounts, without wildcards."
  }
}
